#include "packstone/transcode/target_params.h"

#include <algorithm>
#include <limits>

#include "packstone/format/registry.h"

namespace packstone {
namespace {

// The target's group: the one asked for, else the source's, else the largest that divides it; 0
// where the target has only one.
std::int32_t choose_group(const FormatInfo& target, std::int64_t cols, std::int64_t source_group,
                          std::int32_t asked) {
  const auto sizes = target.group_sizes;
  if (asked != 0 || sizes.empty()) return asked;
  if (sizes.size() == 1) return sizes[0] == kWholeRow ? static_cast<std::int32_t>(cols) : 0;
  std::int32_t chosen = 0, smallest = 0;
  for (std::int32_t size : sizes) {
    if (size == kWholeRow) size = static_cast<std::int32_t>(cols);
    if (smallest == 0 || size < smallest) smallest = size;
    if (size > 0 && source_group % size == 0 && size > chosen) chosen = size;
  }
  return chosen != 0 ? chosen : smallest;
}

// The same parameters; where their group does not fit the shape (the source's last group is short),
// with the largest group that does and divides the source's, if there is one.
FormatParams with_fitting_group(const FormatInfo& target, Shape shape, std::int64_t source_group,
                                const FormatParams& params) {
  if (layout_rule(target.id, shape, params) == nullptr) return params;
  FormatParams best = params;
  std::int32_t largest = 0;
  for (const std::int32_t size : target.group_sizes) {
    FormatParams smaller = params;
    smaller.group_cols = size;
    if (size <= largest || source_group % size != 0 ||
        layout_rule(target.id, shape, smaller) != nullptr)
      continue;
    largest = size;
    best = smaller;
  }
  return best;
}

// Metadata types to try, smallest first, the source's own type before the other.
std::vector<FloatType> choose_metadata(FormatId source, const FormatParams& params, FormatId target,
                                       std::optional<FloatType> asked) {
  if (!has_metadata_type(target)) return {FloatType::kF16};
  if (asked) return {*asked};
  const bool brain = has_metadata_type(source) && params.metadata == FloatType::kBF16;
  if (brain) return {FloatType::kBF16, FloatType::kF16, FloatType::kF32};
  return {FloatType::kF16, FloatType::kBF16, FloatType::kF32};
}

constexpr std::int64_t kGroupColsMax = std::numeric_limits<std::int32_t>::max();

std::string refuse_map(const FormatInfo& source, const FormatInfo& target) {
  return fmt::format("{} has no codes that {} could keep; use quantize{}", source.name, target.name,
                     table_layouts(source));
}

std::string illegal(const FormatInfo& format, Shape shape, const FormatParams& params,
                    const char* rule) {
  return fmt::format("{} of [{}, {}], group {}: need {}", format.name, shape.rows, shape.cols,
                     params.group_cols, rule);
}

// Bits that no place uses are not carried by codes and parameters.
bool has_padding(FormatId id, Shape shape, const FormatParams& params) {
  return visit(id, [&]<class F>() {
    std::uint64_t bits = 0;
    for (int plane = 0; plane < static_cast<int>(F::kPlanes.size()); ++plane)
      bits += F::padding_bits(plane, shape, params);
    return bits != 0;
  });
}

// What forbids moving codes whatever the values are; empty when nothing does.
std::string moved_codes_rule(FormatId id, const FormatParams& params, FormatId target_id,
                             const FormatParams& target_params) {
  const FormatInfo& source = format_info(id);
  const FormatInfo& target = format_info(target_id);
  if (!target.writable)
    return fmt::format("{} is read, not written; use quantize to another layout", target.name);
  if (target.shares_groups)
    return fmt::format(
        "{} shares parameters between groups, so that only a {} weight fits it; use quantize",
        target.name, target.name);
  const LinearSide from = linear_side(id, params);
  const LinearSide to = linear_side(target_id, target_params);
  if (params.act_order && target.index_plane < 0)
    return fmt::format(
        "{} has act-order (g_idx), and {} has no place for group numbers; use a GPTQ layout",
        source.name, target.name);
  if (params.act_order && from.group_cols != to.group_cols)
    return fmt::format(
        "{} has act-order in groups of {}: got groups of {}; keep the source's group", source.name,
        from.group_cols, to.group_cols);
  if (const char* rule = group_rule(from, to))
    return fmt::format("{} has groups of {} columns, {} of {}: got {}, need {}; use quantize",
                       source.name, from.group_cols, target.name, to.group_cols, from.group_cols,
                       rule);
  return {};
}

}  // namespace

std::string table_layouts(const FormatInfo& format) {
  std::string list;
  if (format.scheme != SchemeKind::kTable) return list;
  for (std::uint16_t i = 0; i < kFormatCount; ++i) {
    const FormatInfo& other = format_info(FormatId{i});
    if (other.table != format.table || other.id == format.id) continue;
    list += list.empty() ? " or a layout with its table (" : ", ";
    list += other.layout;
  }
  return list.empty() ? list : list + ")";
}

bool has_metadata_type(FormatId id) {
  return std::ranges::any_of(format_info(id).params, [](const ParamSpec& spec) {
    return spec.coding == ParamCoding::kMetadata;
  });
}

FloatType float_type(FormatId id) {
  return visit(id, []<class F>() {
    if constexpr (F::Scheme::kKind == SchemeKind::kFloat)
      return F::kType;
    else
      return FloatType::kF32;
  });
}

HeaderDecision decide_from_headers(FormatId id, Shape shape, const FormatParams& params,
                                   const TranscodeTarget& target) {
  HeaderDecision decision;
  const FormatInfo& from = format_info(id);
  const FormatInfo& to = format_info(target.id);
  if (const char* rule = layout_rule(id, shape, params)) {
    decision.refused = true;
    decision.reason = illegal(from, shape, params, rule);
    return decision;
  }
  const std::int64_t source_group = group_cols(id, params);
  FormatParams chosen;
  chosen.group_cols = choose_group(to, shape.cols, source_group, target.group_cols);
  chosen.group_rows = target.group_rows != 0 ? target.group_rows
                      : to.shares_rows       ? params.group_rows
                                             : 1;
  chosen.act_order = params.act_order && to.index_plane >= 0;
  // The source's own group, where the target takes any.
  if (target.group_cols == 0 && to.group_sizes.size() > 1 && source_group <= kGroupColsMax) {
    FormatParams own = chosen;
    own.group_cols = static_cast<std::int32_t>(source_group);
    if (layout_rule(target.id, shape, own) == nullptr) chosen = own;
  }
  if (target.group_cols == 0) chosen = with_fitting_group(to, shape, source_group, chosen);
  const char* rule = nullptr;
  for (const FloatType type : choose_metadata(id, params, target.id, target.metadata)) {
    chosen.metadata = type;
    if (const char* broken = layout_rule(target.id, shape, chosen))
      rule = broken;
    else
      decision.candidates.push_back(chosen);
  }
  if (decision.candidates.empty()) {
    decision.refused = true;
    decision.reason = illegal(to, shape, chosen, rule);
    return decision;
  }
  const bool same_group = group_cols(target.id, chosen) == source_group &&
                          (!to.shares_rows || chosen.group_rows == params.group_rows);
  const bool same_type =
      !has_metadata_type(id) || !target.metadata || *target.metadata == params.metadata;
  if (id == target.id && same_group && same_type) {
    decision.copy = true;
    decision.way_back_possible = true;
    decision.candidates = {params};
    return decision;
  }
  decision.map = scheme_map(from, to);
  if (decision.map == SchemeMap::kNone) {
    decision.refused = true;
    decision.reason = refuse_map(from, to);
    return decision;
  }
  decision.needs_trial = to.shares_rows || to.block_codes;
  if (decision.map == SchemeMap::kDecode) {
    decision.way_back_possible = from.scheme == SchemeKind::kFloat;
  } else {
    decision.reason = moved_codes_rule(id, params, target.id, chosen);
    decision.refused = !decision.reason.empty();
    const bool back = scheme_map(to, from) == decision.map && from.writable && !from.shares_groups;
    decision.way_back_possible =
        !decision.refused && back &&
        group_rule(linear_side(target.id, chosen), linear_side(id, params)) == nullptr;
  }
  decision.way_back_in_full = from.block_codes || has_padding(id, shape, params);
  return decision;
}

}  // namespace packstone
