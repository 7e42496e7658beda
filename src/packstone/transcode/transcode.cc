#include "packstone/transcode/transcode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>

#include "packstone/base/check.h"
#include "packstone/transcode/fill.h"
#include "packstone/transcode/plain_move.h"
#include "packstone/transcode/zero_signs.h"

namespace packstone {
namespace {

constexpr std::int64_t kRowsAtATime = 8;
constexpr std::int64_t kNoRow = std::numeric_limits<std::int64_t>::max();

// A place in row order; the default is after all others.
struct Place {
  std::int64_t row = kNoRow;
  std::int64_t col = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
  bool found() const { return row != kNoRow; }
};

// The first thing in row order that forbids the map, with what its message needs.
struct Fault {
  Place place;
  GroupFault kind = GroupFault::kNone;
  std::int64_t width = 1;  // columns concerned
  GroupValues source, target;
  CodeRange range;
  float value = 0;
};

// What one worker saw. Counts add up and places take the first, so that any split of the rows gives
// the same summary.
struct Summary {
  Fault fault;
  std::vector<Fault> candidate_fault;  // per metadata type: the first group that does not fit
  std::int64_t nonfinite = 0, zero_signs = 0;
  Place first_nonfinite, first_zero_sign;
  bool way_back = true, shifted = false;

  void merge(const Summary& other) {
    take_first(fault, other.fault);
    for (std::size_t i = 0; i < candidate_fault.size(); ++i)
      take_first(candidate_fault[i], other.candidate_fault[i]);
    nonfinite += other.nonfinite;
    zero_signs += other.zero_signs;
    first_nonfinite = std::min(first_nonfinite, other.first_nonfinite);
    first_zero_sign = std::min(first_zero_sign, other.first_zero_sign);
    way_back = way_back && other.way_back;
    shifted = shifted || other.shifted;
  }
  static void take_first(Fault& into, const Fault& from) {
    if (from.place < into.place) into = from;
  }
};

std::string number(float value) {
  return fmt::format("{:.9g} (0x{:08X})", value, std::bit_cast<std::uint32_t>(value));
}

std::string where(const Fault& fault) {
  if (fault.width == 1) return fmt::format("row {}, column {}", fault.place.row, fault.place.col);
  return fmt::format("row {}, columns [{}, {})", fault.place.row, fault.place.col,
                     fault.place.col + fault.width);
}

// What a table format stores as scales.
std::string_view scale_numbers(const FormatInfo& format, const FormatParams& params) {
  for (const ParamSpec& spec : format.params) {
    if (spec.coding == ParamCoding::kE8M0) return "powers of two from 2^-127 to 2^127";
    if (spec.coding == ParamCoding::kE4M3) return "e4m3 numbers up to 448";
    if (spec.coding == ParamCoding::kMetadata) return float_name(params.metadata);
  }
  return "float32";
}

// The refusal of a group whose codes could move as they are, but not its scale.
std::string explain_table(const Fault& fault, const FormatInfo& source, const FormatInfo& target,
                          const FormatParams& params) {
  if (fault.kind == GroupFault::kReciprocal)
    return fmt::format(
        "{}: the scale {} of {} is no power of two, so that {} has no exact scale for it; keep {}, "
        "or float32 for a dense weight",
        where(fault), number(fault.source.scale), source.name, target.name, source.name);
  if (fault.kind == GroupFault::kNotFinite)
    return fmt::format(
        "{}: a code or scale of {} is not finite, which readers of {} take for different values; "
        "keep {}, or float32 for a dense weight",
        where(fault), source.name, target.name, source.name);
  return fmt::format(
      "{}: the scale {} is not in {}, which has {}; keep {}, or float32 for a dense weight",
      where(fault), number(fault.target.scale), target.name, scale_numbers(target, params),
      source.name);
}

// The refusal in words: place, rule, what would work.
std::string explain(const Fault& fault, const FormatInfo& source, const FormatInfo& target,
                    const FormatParams& params) {
  const std::string at = where(fault);
  switch (fault.kind) {
    case GroupFault::kCodeRange:
      return fmt::format(
          "{}: codes {} to {} of {} do not fit the {} bits of {}; use a wider layout{}", at,
          fault.range.low, fault.range.high, source.name, target.code_bits, target.name,
          table_layouts(source));
    case GroupFault::kZeroPoint:
      return fmt::format(
          "{}: scale {}, offset {} put the zero between two codes, and {} stores no offset; "
          "use a layout with offsets (mlx-affine, gguf:Q4_1, gguf:Q5_1)",
          at, number(fault.source.scale), number(fault.source.offset), target.name);
    case GroupFault::kNeighbours:
      return fmt::format(
          "{}: neighbouring groups have different parameters; keep the source's group", at);
    case GroupFault::kEncode:
      if (target.scheme == SchemeKind::kTable) return explain_table(fault, source, target, params);
      return fmt::format(
          "{}: scale {}, offset {} do not fit the {} parameters of {}; {}", at,
          number(fault.target.scale), number(fault.target.offset),
          has_metadata_type(target.id) ? float_name(params.metadata) : "float16", target.name,
          has_metadata_type(target.id) ? "float32 metadata holds them"
                                       : "mlx-affine with float32 metadata holds them");
    case GroupFault::kValue:
      if (target.scheme == SchemeKind::kFloat)
        return fmt::format("{}: value {} is not a {} number; float32 holds it", at,
                           number(fault.value), target.name);
      return fmt::format("{}: the value of scale {}, offset {} would change in {}; keep {}", at,
                         number(fault.source.scale), number(fault.source.offset), target.name,
                         source.name);
    case GroupFault::kShared:
      return fmt::format(
          "row {}: {} has no block with its codes, or would need two values for a parameter that "
          "rows share; keep {}",
          fault.place.row, target.name, source.name);
    case GroupFault::kReciprocal:
    case GroupFault::kNotFinite:
      return explain_table(fault, source, target, params);
    case GroupFault::kNone:
      break;
  }
  return at;
}

// A row: where messages say it is, and where it is stored.
struct RowAt {
  std::int64_t row = 0, stored = 0;
};

void plan_linear_row(RowMap& map, RowAt at, const HeaderDecision& decision,
                     const TranscodeTarget& target, std::vector<RawParams>& raw, Summary& summary) {
  const std::int64_t row = at.row;
  const RowMap::RowResult result = map.map(at.stored, RowMap::Purpose::kPlan);
  const std::int64_t source_width = map.source_side().group_cols;
  const std::int64_t width = map.target_side().group_cols;
  if (result.nonfinite_groups > 0) {
    summary.nonfinite += result.nonfinite_groups;
    summary.first_nonfinite =
        std::min(summary.first_nonfinite, {row, result.first_nonfinite * source_width});
  }
  if (result.zero_sign_changes > 0) {
    summary.zero_signs += result.zero_sign_changes;
    summary.first_zero_sign = std::min(summary.first_zero_sign, {row, result.first_zero_col});
  }
  summary.shifted = summary.shifted || result.shifted;
  summary.way_back = summary.way_back && result.way_back;
  auto fault_at = [&](std::int64_t group, GroupFault kind) {
    const auto source_group = static_cast<std::size_t>(group * width / source_width);
    return Fault{{row, group * width},
                 kind,
                 width,
                 map.source_values()[source_group],
                 map.values()[static_cast<std::size_t>(group)],
                 map.range(group),
                 0};
  };
  if (result.fault != GroupFault::kNone) {
    Fault fault = fault_at(result.group, result.fault);
    if (result.fault_col >= 0) fault.place.col = result.fault_col, fault.width = 1;
    Summary::take_first(summary.fault, fault);
    return;
  }
  for (std::size_t i = 0; i < decision.candidates.size(); ++i) {
    if (summary.candidate_fault[i].place.row < row) continue;
    const std::int64_t group = encode_params(target.id, decision.candidates[i], map.values(), raw);
    if (group >= 0)
      Summary::take_first(summary.candidate_fault[i], fault_at(group, GroupFault::kEncode));
  }
}

void plan_decode_row(const PackedWeight& source, FloatType type, RowAt at,
                     std::vector<float>& values, Summary& summary) {
  decode_row(source, at.stored, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Place place{at.row, static_cast<std::int64_t>(i)};
    if (!std::isfinite(values[i])) {
      ++summary.nonfinite;
      summary.first_nonfinite = std::min(summary.first_nonfinite, place);
    }
    std::uint32_t pattern = 0;
    if (encode_float_exact(type, values[i], pattern)) continue;
    Summary::take_first(summary.fault, {place, GroupFault::kValue, 1, {}, {}, {}, values[i]});
    return;
  }
}

// The scratch of one worker that plans moves of codes.
struct MovePlanner {
  RowMap map;
  std::optional<PlainMove> plain;
  std::optional<ZeroSigns> zero_signs;
  std::vector<RawParams> raw;

  MovePlanner(const PackedWeight& source, FormatId target, const HeaderDecision& decision,
              MoveWay way)
      : map(source, target, decision.candidates.front()) {
    const auto groups =
        static_cast<std::size_t>(ceil_div(source.shape().cols, map.target_side().group_cols));
    raw.resize(groups);
    if (way == MoveWay::kPlain) plain.emplace(source, target, decision.candidates);
    if (plain && !plain->possible()) plain.reset();
    if (plain && plain->changes_signs()) zero_signs.emplace(source, groups);
  }
};

// Plans rows that are plain at once, and the others one by one.
void plan_plain_rows(MovePlanner& planner, std::span<const RowAt> rows,
                     const HeaderDecision& decision, const TranscodeTarget& target,
                     Summary& summary) {
  PlainMove& plain = *planner.plain;
  std::vector<std::int64_t> stored;
  for (const RowAt& at : rows) stored.push_back(at.stored);
  const std::int64_t width = planner.map.source_side().group_cols;
  for (std::size_t begin = 0; begin < rows.size(); begin += PlainMove::kRowsMax) {
    const auto chunk =
        rows.subspan(begin, std::min<std::size_t>(PlainMove::kRowsMax, rows.size() - begin));
    plain.load(std::span(stored).subspan(begin, chunk.size()));
    for (std::size_t i = 0; !plain.first_fits() && i < decision.candidates.size(); ++i)
      if (summary.candidate_fault[i].place.row >= chunk.front().row) plain.fit(i);
    for (std::size_t r = 0; r < chunk.size(); ++r) {
      if (!plain.plain(r)) {
        plan_linear_row(planner.map, chunk[r], decision, target, planner.raw, summary);
        continue;
      }
      std::int64_t first = -1;
      if (const std::int64_t count = plain.nonfinite(r, first); count > 0) {
        summary.nonfinite += count;
        summary.first_nonfinite = std::min(summary.first_nonfinite, {chunk[r].row, first * width});
      }
      if (planner.zero_signs) planner.zero_signs->set(begin + r, plain.sign_codes(r));
    }
  }
  if (!planner.zero_signs) return;
  const ZeroSigns::Count zeros = planner.zero_signs->count(stored);
  if (zeros.zeros == 0) return;
  summary.zero_signs += zeros.zeros;
  summary.first_zero_sign =
      std::min(summary.first_zero_sign, {rows[static_cast<std::size_t>(zeros.row)].row, zeros.col});
}

void plan_moved(const PackedWeight& source, const TranscodeTarget& target,
                const HeaderDecision& decision, std::span<const std::int32_t> row_order,
                MoveWay way, ThreadPool& pool, std::vector<Summary>& summaries) {
  const auto place = [&](std::int64_t row) {
    return RowAt{row, row_order.empty() ? row : row_order[static_cast<std::size_t>(row)]};
  };
  std::vector<MovePlanner> planners;
  for (int i = 0; i < pool.size(); ++i) planners.emplace_back(source, target.id, decision, way);
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    std::array<RowAt, kPackUnitRows> rows;
    while (begin < end) {
      std::size_t count = 0;
      for (; begin < end && count < rows.size(); ++begin) rows[count++] = place(begin);
      const auto block = std::span<const RowAt>(rows).first(count);
      if (planners[w].plain) {
        plan_plain_rows(planners[w], block, decision, target, summaries[w]);
        continue;
      }
      for (const RowAt& at : block)
        plan_linear_row(planners[w].map, at, decision, target, planners[w].raw, summaries[w]);
    }
  };
  const bool blocks = planners.front().plain.has_value();
  pool.parallel(source.shape().rows, blocks ? kPackUnitRows : kRowsAtATime, work);
}

void plan_decoded(const PackedWeight& source, const TranscodeTarget& target,
                  std::span<const std::int32_t> row_order, ThreadPool& pool,
                  std::vector<Summary>& summaries) {
  const FloatType type = float_type(target.id);
  std::vector<std::vector<float>> values(
      summaries.size(), std::vector<float>(static_cast<std::size_t>(source.shape().cols)));
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t stored =
          row_order.empty() ? row : row_order[static_cast<std::size_t>(row)];
      plan_decode_row(source, type, {row, stored}, values[w], summaries[w]);
    }
  };
  pool.parallel(source.shape().rows, kRowsAtATime, work);
}

Summary read_source(const PackedWeight& source, const TranscodeTarget& target,
                    const HeaderDecision& decision, std::span<const std::int32_t> row_order,
                    MoveWay way, ThreadPool& pool) {
  Summary summary;
  summary.candidate_fault.resize(decision.candidates.size());
  std::vector<Summary> summaries(static_cast<std::size_t>(pool.size()), summary);
  if (decision.map != SchemeMap::kDecode)
    plan_moved(source, target, decision, row_order, way, pool, summaries);
  else
    plan_decoded(source, target, row_order, pool, summaries);
  for (const Summary& one : summaries) summary.merge(one);
  return summary;
}

Verdict verdict_of(std::uint64_t source_bytes, std::uint64_t target_bytes, bool way_back) {
  if (target_bytes > source_bytes) return Verdict::kSameValuesMoreBytes;
  return way_back ? Verdict::kSameBytes : Verdict::kSameValues;
}

TranscodePlan refused(const HeaderDecision& decision, std::string reason) {
  TranscodePlan plan;
  if (!decision.candidates.empty()) plan.params = decision.candidates.back();
  plan.reason = std::move(reason);
  return plan;
}

std::string counted(std::int64_t count, std::string_view what, Place first) {
  return fmt::format("{} {}, first at row {}, column {}", count, what, first.row, first.col);
}

// Makes the target once and drops it: the first source row that cannot be made, or -1.
Result<std::int64_t> try_target(const PackedWeight& source, FormatId target,
                                const FormatParams& params, SchemeMap map,
                                std::span<const std::int32_t> row_order, MoveWay way,
                                ThreadPool& pool) {
  PACKSTONE_TRY(OwnedWeight owned, OwnedWeight::allocate(target, source.shape(), params));
  return fill(source, map, row_order, way, owned, pool);
}

// Whether codes and parameters give all bytes of the weight.
Result<bool> makes_itself(const PackedWeight& weight, MoveWay way, ThreadPool& pool) {
  PACKSTONE_TRY(OwnedWeight owned,
                OwnedWeight::allocate(weight.id(), weight.shape(), weight.params()));
  if (copy_rows(weight, {}, way, owned, pool) >= 0) return false;
  for (int plane = 0; plane < weight.plane_count(); ++plane)
    if (!std::ranges::equal(weight.plane(plane), owned.planes[static_cast<std::size_t>(plane)]))
      return false;
  return true;
}

// What only making weights tells: a refusal in words, or nothing; `way_back` becomes what is true.
std::string try_in_full(const PackedWeight& source, const TranscodeTarget& target,
                        const FormatParams& params, const HeaderDecision& decision,
                        std::span<const std::int32_t> row_order, MoveWay way, ThreadPool& pool,
                        bool& way_back) {
  constexpr std::string_view kMemory =
      "too little memory to make the weight once; free memory and retry";
  try {
    if (decision.needs_trial) {
      const auto row = try_target(source, target.id, params, decision.map, row_order, way, pool);
      if (!row) return std::string(kMemory);
      if (*row >= 0)
        return explain({{*row, 0}, GroupFault::kShared, 1, {}, {}, {}, 0}, source.format(),
                       format_info(target.id), params);
    }
    if (way_back && decision.way_back_in_full) {
      const auto same = makes_itself(source, way, pool);
      if (!same) return std::string(kMemory);
      way_back = *same;
    }
  } catch (const std::bad_alloc&) {
    return std::string(kMemory);
  }
  return {};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSameBytes:
      return "same_bytes";
    case Verdict::kSameValues:
      return "same_values";
    case Verdict::kSameValuesMoreBytes:
      return "same_values_more_bytes";
    case Verdict::kRefused:
      return "refused";
    case Verdict::kChanged:
      return "changed";
  }
  return "";
}

TranscodePlan plan_transcode(const PackedWeight& source, const TranscodeTarget& target,
                             ThreadPool& pool, std::span<const std::int32_t> row_order) {
  return plan_transcode_by(MoveWay::kPlain, source, target, pool, row_order);
}

TranscodePlan plan_transcode_by(MoveWay way, const PackedWeight& source,
                                const TranscodeTarget& target, ThreadPool& pool,
                                std::span<const std::int32_t> row_order) {
  PACKSTONE_ASSERT(row_order.empty() ||
                   static_cast<std::int64_t>(row_order.size()) == source.shape().rows);
  const HeaderDecision decision =
      decide_from_headers(source.id(), source.shape(), source.params(), target);
  if (decision.refused) return refused(decision, decision.reason);
  TranscodePlan plan;
  if (decision.copy) {
    plan.verdict = Verdict::kSameBytes;
    plan.params = decision.candidates.front();
    return plan;
  }
  Summary summary;
  try {
    summary = read_source(source, target, decision, row_order, way, pool);
  } catch (const std::bad_alloc&) {
    return refused(decision, "too little memory for one row per thread; free memory and retry");
  }
  const FormatInfo& from = source.format();
  const FormatInfo& to = format_info(target.id);
  if (summary.fault.place.found())
    return refused(decision, explain(summary.fault, from, to, decision.candidates.back()));
  std::size_t chosen = 0;
  while (chosen < decision.candidates.size() && summary.candidate_fault[chosen].place.found())
    ++chosen;
  if (chosen == decision.candidates.size())
    return refused(decision,
                   explain(summary.candidate_fault.back(), from, to, decision.candidates.back()));
  plan.params = decision.candidates[chosen];
  bool way_back = decision.way_back_possible && summary.way_back;
  std::string fault =
      try_in_full(source, target, plan.params, decision, row_order, way, pool, way_back);
  if (!fault.empty()) return refused(decision, std::move(fault));
  plan.verdict =
      verdict_of(source.bytes(), weight_bytes(target.id, source.shape(), plan.params), way_back);
  if (has_metadata_type(target.id))
    plan.conditions.push_back(
        fmt::format("every scale and offset is a {} number", float_name(plan.params.metadata)));
  if (summary.shifted) plan.conditions.push_back("codes move by a whole number per group");
  if (summary.nonfinite > 0)
    plan.conditions.push_back(
        counted(summary.nonfinite,
                decision.map != SchemeMap::kDecode
                    ? "groups with a non-finite scale or offset, kept as they are"
                    : "non-finite values, kept as they are",
                summary.first_nonfinite));
  if (summary.zero_signs > 0)
    plan.conditions.push_back(
        counted(summary.zero_signs, "zeros change their sign", summary.first_zero_sign));
  if (way_back) plan.conditions.push_back("the way back gives the source's bytes");
  return plan;
}

namespace {

// What moved codes still depend on when only headers are known. Chooses the metadata type that
// most weights of the source's format need.
void moved_conditions(FormatId id, const FormatParams& params, FormatId target,
                      const HeaderDecision& decision, TranscodePlan& plan) {
  const FormatInfo& from = format_info(id);
  const LinearSide source_side = linear_side(id, params);
  const LinearSide target_side = linear_side(target, plan.params);
  const bool typed = has_metadata_type(target);
  // A half times an integer fits 16 bits only by chance.
  const bool products = std::ranges::any_of(
      from.params, [](const ParamSpec& spec) { return spec.kind == ParamKind::kSuperScale; });
  if (decision.candidates.size() > 1) {
    if (products) plan.params = decision.candidates.back();
    plan.conditions.push_back(
        products ? "float32 metadata, or 16-bit where every scale and offset fits"
                 : fmt::format("{} metadata if every scale and offset fits, else larger",
                               float_name(plan.params.metadata)));
  } else if (!typed || plan.params.metadata != FloatType::kF32) {
    plan.conditions.push_back(
        format_info(target).scheme == SchemeKind::kTable
            ? fmt::format("only if the target, which has {}, has every scale",
                          scale_numbers(format_info(target), plan.params))
            : fmt::format("only if every scale and offset is a {} number",
                          typed ? float_name(plan.params.metadata) : "float16"));
  }
  if (decision.needs_trial)
    plan.conditions.push_back("only if the target has such blocks and shared parameters");
  if (decision.map == SchemeMap::kReciprocal)
    plan.conditions.push_back("only if every scale is a power of two");
  if (format_info(target).finite_only)
    plan.conditions.push_back("only if every code and scale is finite");
  if (decision.map == SchemeMap::kSameTable || decision.map == SchemeMap::kReciprocal) return;
  if (target_side.code_bits < source_side.code_bits)
    plan.conditions.push_back(
        fmt::format("only if the codes of every group fit {} bits", target_side.code_bits));
  if (source_side.has_offset && !target_side.has_offset)
    plan.conditions.push_back("only if every offset is a whole multiple of its scale");
  if (target_side.group_cols > source_side.group_cols)
    plan.conditions.push_back("only if neighbouring groups have equal parameters");
}

}  // namespace

TranscodePlan header_verdict(FormatId id, Shape shape, const FormatParams& params,
                             const TranscodeTarget& target) {
  const HeaderDecision decision = decide_from_headers(id, shape, params, target);
  if (decision.refused) return refused(decision, decision.reason);
  TranscodePlan plan;
  plan.params = decision.candidates.front();
  if (decision.map != SchemeMap::kDecode && !decision.copy)
    moved_conditions(id, params, target.id, decision, plan);
  else if (!decision.copy && float_type(target.id) != FloatType::kF32)
    plan.conditions.push_back(
        fmt::format("only if every value is a {} number", format_info(target.id).name));
  plan.verdict =
      verdict_of(weight_bytes(id, shape, params), weight_bytes(target.id, shape, plan.params),
                 decision.way_back_possible);
  return plan;
}

Result<PackedWeight> transcode(const PackedWeight& source, const TranscodePlan& plan,
                               const TranscodeTarget& target,
                               std::span<const std::int32_t> row_order, ThreadPool& pool) {
  return transcode_by(MoveWay::kPlain, source, plan, target, row_order, pool);
}

Result<PackedWeight> transcode_by(MoveWay way, const PackedWeight& source,
                                  const TranscodePlan& plan, const TranscodeTarget& target,
                                  std::span<const std::int32_t> row_order, ThreadPool& pool) {
  constexpr std::string_view kWhere = "transcode.transcode";
  const std::string_view name = format_info(target.id).name;
  if (plan.verdict == Verdict::kRefused || plan.verdict == Verdict::kChanged)
    return fail(ErrorCode::kNotRepresentable, kWhere, name, verdict_name(plan.verdict),
                "a plan that keeps every value", plan.reason);
  const Shape shape = source.shape();
  if (target.id == source.id() && plan.params == source.params())
    return row_order.empty() ? Result<PackedWeight>(source) : permute_rows(source, row_order, pool);
  const auto in_range = [&](std::int32_t row) { return row >= 0 && row < shape.rows; };
  if (!row_order.empty() && (static_cast<std::int64_t>(row_order.size()) != shape.rows ||
                             !std::ranges::all_of(row_order, in_range)))
    return fail(ErrorCode::kInvalidInput, kWhere, "row order",
                fmt::format("{} entries or a row out of range", row_order.size()),
                fmt::format("{} rows in [0, {})", shape.rows, shape.rows));
  PACKSTONE_TRY(OwnedWeight owned, OwnedWeight::allocate(target.id, shape, plan.params));
  std::int64_t failed = -1;
  try {
    failed = fill(source, scheme_map(source.format(), format_info(target.id)), row_order, way,
                  owned, pool);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, name, "too little memory",
                "scratch of one row per thread");
  }
  if (failed >= 0)
    return fail(ErrorCode::kNotRepresentable, kWhere, name, fmt::format("row {}", failed),
                "a plan made for this weight");
  return std::move(owned).release(name);
}

}  // namespace packstone
