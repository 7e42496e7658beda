#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "packstone/transcode/transcode.h"
#include "packstone/transcode/unpack.h"
#include "packstone/weight/placed.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "weight.place";
constexpr int kDevicesMax = 4096;

// The least number of columns, from one group on, that the layout can store alone.
std::int64_t column_unit(FormatId format, const FormatParams& params, Shape matrix) {
  const std::int64_t group = std::max<std::int64_t>(group_cols(format, params), 1);
  for (std::int64_t unit = group; unit < matrix.cols; unit += group)
    if (matrix.cols % unit == 0 && layout_rule(format, {matrix.rows, unit}, params) == nullptr)
      return unit;
  return std::max<std::int64_t>(matrix.cols, 1);
}

// The least number of rows that the layout can store alone.
std::int64_t row_unit(FormatId format, const FormatParams& params, Shape matrix) {
  for (std::int64_t unit = 1; unit < matrix.rows; ++unit)
    if (matrix.rows % unit == 0 && layout_rule(format, {unit, matrix.cols}, params) == nullptr)
      return unit;
  return std::max<std::int64_t>(matrix.rows, 1);
}

// The columns of all devices of one matrix, or stack, side by side.
Result<PackedWeight> join_columns(const WeightState& state, std::size_t index) {
  const PackedWeight& like = state.slabs[0].packed[index];
  if (!like.format().writable)
    return fail(ErrorCode::kUnsupported, kWhere, like.format().name, "a layout that is only read",
                "the whole weight, placed anew");
  const Shape shape{like.shape().rows, state.dims.back()};
  PACKSTONE_TRY(OwnedWeight target, OwnedWeight::allocate(like.id(), shape, like.params()));
  const std::int64_t group = std::max<std::int64_t>(group_cols(like.id(), like.params()), 1);
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(shape.cols));
  std::vector<RawParams> raw(static_cast<std::size_t>(ceil_div(shape.cols, group)));
  std::vector<GroupValues> values(raw.size());
  const auto planes = target.pointers();
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::size_t col = 0, unit = 0;
    for (const Slab& slab : state.slabs) {
      const auto cols = static_cast<std::size_t>(slab.cols);
      const auto units = static_cast<std::size_t>(ceil_div(slab.cols, group));
      unpack_row(slab.packed[index], row, std::span(codes).subspan(col, cols),
                 std::span(values).subspan(unit, units));
      raw_params_row(slab.packed[index], row, std::span(raw).subspan(unit, units));
      col += cols;
      unit += units;
    }
    if (!pack_row(like.id(), shape, like.params(), planes.data(), row, codes, raw))
      return fail(ErrorCode::kNotRepresentable, kWhere, like.format().name,
                  fmt::format("row {}", row), "codes that a block of the layout has");
  }
  return std::move(target).release(like.format().name);
}

// The whole weight again on one device.
Result<Weight> collect(const Weight& w) {
  const WeightState& state = w.state();
  const int axis = state.placement.axis;
  WeightState one{state.kind, state.dims, {}, {}, state.slabs};
  if (!state.is_cut()) return WeightMaker::make(std::move(one));
  if (axis + 1 < static_cast<int>(state.dims.size())) {
    std::vector<std::int64_t> all(
        static_cast<std::size_t>(state.dims[static_cast<std::size_t>(axis)]));
    std::iota(all.begin(), all.end(), 0);
    PACKSTONE_TRY(Weight taken, take(w, axis, all));
    one.slabs = taken.state().slabs;
    return WeightMaker::make(std::move(one));
  }
  const Slab& first = state.slabs[0];
  for (const Slab& slab : state.slabs)
    if (slab.used != slab.cols)
      return fail(ErrorCode::kUnsupported, kWhere, w.case_name(), "codes cut inside blocks",
                  "the whole weight, placed anew");
  const std::int64_t k = state.dims.back();
  Slab whole{{}, first.count, first.per, first.rows, k, 0, k};
  for (std::size_t i = 0; i < first.packed.size(); ++i) {
    PACKSTONE_TRY(PackedWeight joined, join_columns(state, i));
    whole.packed.push_back(std::move(joined));
  }
  one.slabs.assign(1, std::move(whole));
  return WeightMaker::make(std::move(one));
}

Result<Slab> cut_columns(const Slab& whole, ColumnWindow window) {
  Slab made{{}, whole.count, whole.per, whole.rows, window.count, 0, window.count};
  for (const PackedWeight& packed : whole.packed) {
    PACKSTONE_TRY(PackedWeight one,
                  gather_rows(
                      packed, packed.shape().rows,
                      [&](std::int64_t row) { return RowPick{&packed, row}; }, window, kWhere));
    made.packed.push_back(std::move(one));
  }
  return made;
}

Result<Slab> cut_slab(const WeightState& state, int axis, std::int64_t first, std::int64_t last) {
  const Slab& whole = state.slabs[0];
  const int rank = static_cast<int>(state.dims.size());
  if (axis == rank - 1) return cut_columns(whole, {first, last - first});
  const ColumnWindow all{0, whole.cols};
  const auto from = [&](std::int64_t matrix, std::int64_t row) {
    return RowPick{&whole.weight_of(matrix), whole.first_row(matrix) + row};
  };
  if (axis == rank - 2)
    return gather_slab(
        state.like(), whole.count, last - first,
        [&](std::int64_t matrix, std::int64_t row) { return from(matrix, first + row); }, all,
        kWhere);
  const auto at = static_cast<std::size_t>(axis);
  std::int64_t inner = 1;
  for (std::size_t i = at + 1; i + 2 < state.dims.size(); ++i) inner *= state.dims[i];
  const std::int64_t run = (last - first) * inner, step = state.dims[at] * inner;
  const std::int64_t count = step == 0 ? 0 : whole.count / step * run;
  return gather_slab(
      state.like(), count, whole.rows,
      [&](std::int64_t matrix, std::int64_t row) {
        return from(matrix / run * step + first * inner + matrix % run, row);
      },
      all, kWhere);
}

// Columns [first, last) of MXFP4 codes, with whole blocks of scales; columns of the blocks that are
// not among them have codes of zero.
Result<Slab> cut_codes(const Slab& whole, std::int64_t first, std::int64_t last) {
  const std::int64_t from = first / 32 * 32, to = ceil_div(last, 32) * 32;
  const PackedWeight& packed = whole.packed[0];
  const std::int64_t rows = packed.shape().rows;
  PACKSTONE_TRY(OwnedWeight target,
                OwnedWeight::allocate(packed.id(), {rows, to - from}, packed.params()));
  for (std::int64_t row = 0; row < rows && first < last; ++row) {
    std::memcpy(target.planes[0].data() + row * (to - from) / 2 + (first - from) / 2,
                packed.plane(0).data() + (row * whole.cols + first) / 2,
                static_cast<std::size_t>((last - first) / 2));
    std::memcpy(target.planes[1].data() + row * (to - from) / 32,
                packed.plane(1).data() + (row * whole.cols + from) / 32,
                static_cast<std::size_t>((to - from) / 32));
  }
  Slab made{{}, whole.count, whole.per, whole.rows, to - from, first - from, last - first};
  PACKSTONE_TRY(PackedWeight one, std::move(target).release("codes"));
  made.packed.push_back(std::move(one));
  return made;
}

// Codes cut along k beside scales that are whole.
Result<Weight> place_codes(const Weight& w, Placement codes) {
  PACKSTONE_TRY(Weight one, collect(w));
  const WeightState& source = one.state();
  const std::int64_t bytes = w.k() / 2;
  if (codes.devices < 1 || codes.devices > kDevicesMax || bytes % codes.devices != 0)
    return fail(ErrorCode::kInvalidInput, kWhere, "codes",
                fmt::format("axis {} of {} cut over {} devices: {} bytes of codes in a row",
                            codes.axis, dims_text(w.shape()), codes.devices, bytes),
                "a number of devices that divides the bytes", "keep it whole along k");
  WeightState state{source.kind, source.dims, codes, window_ends(w.k(), codes.devices, 2), {}};
  for (std::size_t d = 0; d + 1 < state.ends.size(); ++d) {
    PACKSTONE_TRY(Slab slab, cut_codes(source.slabs[0], state.ends[d], state.ends[d + 1]));
    state.slabs.push_back(std::move(slab));
  }
  return WeightMaker::make(std::move(state));
}

std::string placement_text(Placement placement) {
  if (placement.axis == Placement::kWhole)
    return fmt::format("whole on {} devices", placement.devices);
  return fmt::format("cut along axis {} over {} devices", placement.axis, placement.devices);
}

// The names of a weight's parts.
std::vector<std::string> part_names(const Weight& w) {
  if (w.case_name() == "mxfp4") return {"codes", "scales"};
  const WeightParts parts = w.parts();
  if (!std::holds_alternative<PlaneParts>(parts)) return {"blocks"};
  std::vector<std::string> names;
  for (const NamedPart& part : std::get<PlaneParts>(parts).planes)
    if (std::ranges::find(names, part.name) == names.end()) names.push_back(part.name);
  return names;
}

}  // namespace

Result<CutPlan> plan_cut(FormatId format, const FormatParams& params,
                         std::span<const std::int64_t> dims, Placement placement) {
  const int rank = static_cast<int>(dims.size());
  const std::string_view name = format_info(format).name;
  if (placement.devices < 1 || placement.devices > kDevicesMax || rank < 2 ||
      placement.axis < Placement::kWhole || placement.axis >= rank || !element_count(dims))
    return fail(ErrorCode::kInvalidInput, kWhere, name,
                fmt::format("axis {} of {} cut over {} devices", placement.axis, dims_text(dims),
                            placement.devices),
                "an axis of the shape, counted from 0, and 1 to 4096 devices");
  if (placement.axis == Placement::kWhole) return CutPlan{};
  const Shape matrix{dims[static_cast<std::size_t>(rank) - 2],
                     dims[static_cast<std::size_t>(rank) - 1]};
  const std::int64_t length = dims[static_cast<std::size_t>(placement.axis)];
  CutPlan plan;
  if (placement.axis == rank - 2) plan.unit = row_unit(format, params, matrix);
  if (placement.axis == rank - 1) {
    plan.unit = column_unit(format, params, matrix);
    const std::int64_t blocks = ceil_div(length, plan.unit);
    if (blocks % placement.devices != 0)
      return fail(
          ErrorCode::kInvalidInput, kWhere, name,
          fmt::format("axis {} of {} cut over {} devices: {} blocks of {} along k", placement.axis,
                      dims_text(dims), placement.devices, blocks, plan.unit),
          "a number of devices that divides the blocks",
          fmt::format("keep it whole along k, cut along n, or pad k and x with zero blocks to {} "
                      "blocks",
                      ceil_div(blocks, placement.devices) * placement.devices));
  }
  plan.ends = window_ends(length, placement.devices, plan.unit);
  return plan;
}

Result<Weight> place(const Weight& w, Placement placement) {
  PACKSTONE_TRY(CutPlan plan, plan_cut(w.format(), w.params(), w.shape(), placement));
  try {
    PACKSTONE_TRY(Weight one, collect(w));
    const WeightState& source = one.state();
    WeightState state{source.kind, source.dims, placement, std::move(plan.ends), {}};
    if (!state.is_cut()) {
      state.slabs = source.slabs;
      return WeightMaker::make(std::move(state));
    }
    for (std::size_t d = 0; d + 1 < state.ends.size(); ++d) {
      PACKSTONE_TRY(Slab slab, cut_slab(source, placement.axis, state.ends[d], state.ends[d + 1]));
      state.slabs.push_back(std::move(slab));
    }
    return WeightMaker::make(std::move(state));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, w.case_name(), "too little memory",
                "the parts of every device");
  }
}

Result<Weight> place_parts(const Weight& w, std::span<const PartPlacement> parts) {
  const std::vector<std::string> names = part_names(w);
  const auto of = [&](std::string_view name) {
    return std::ranges::find(parts, name, &PartPlacement::part);
  };
  for (const std::string& name : names)
    if (of(name) == parts.end() || parts.size() != names.size())
      return fail(ErrorCode::kInvalidInput, kWhere, w.case_name(),
                  fmt::format("{} placements", parts.size()),
                  fmt::format("one for each of {}", fmt::join(names, ", ")));
  const Placement first = of(names[0])->placement;
  const auto apart = std::ranges::find_if(
      names, [&](const std::string& name) { return of(name)->placement != first; });
  if (apart == names.end()) return place(w, first);
  const Placement other = of(*apart)->placement;
  const int k_axis = static_cast<int>(w.shape().size()) - 1;
  if (w.case_name() == "mxfp4" && first.axis == k_axis && other.axis == Placement::kWhole &&
      other.devices == first.devices) {
    try {
      return place_codes(w, first);
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kExhausted, kWhere, w.case_name(), "too little memory",
                  "the parts of every device");
    }
  }
  return fail(ErrorCode::kInvalidInput, kWhere, *apart, placement_text(other),
              fmt::format("{}, beside {}", placement_text(first), names[0]),
              "place all parts alike, or keep the weight whole along k");
}

}  // namespace packstone
