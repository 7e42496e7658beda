#include <algorithm>
#include <new>

#include "packstone/transcode/transcode.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

constexpr std::string_view kTake = "weight.take";
constexpr std::string_view kWalk = "weight.walk";

// The device that has index `at` of the axis, and the index there; nothing out of range.
struct Located {
  const Slab* slab = nullptr;
  std::int64_t index = 0;
  std::int64_t length = 0;  // of the axis on that device
};

Located locate(const WeightState& state, int axis, std::int64_t at) {
  const std::int64_t length = state.dims[static_cast<std::size_t>(axis)];
  if (at < 0 || at >= length) return {};
  if (state.placement.axis != axis) return {&state.slabs[0], at, length};
  std::size_t d = 0;
  while (at >= state.ends[d + 1]) ++d;
  return {&state.slabs[d], at - state.ends[d], state.ends[d + 1] - state.ends[d]};
}

// Takes along one axis of the slabs of a weight that is not cut along another.
Result<Slab> take_slab(const WeightState& state, int axis,
                       std::span<const std::int64_t> positions) {
  const auto at = static_cast<std::size_t>(axis);
  const std::size_t rank = state.dims.size();
  const auto length = static_cast<std::int64_t>(positions.size());
  std::vector<Located> places;
  for (const std::int64_t position : positions) places.push_back(locate(state, axis, position));
  const Slab& like = state.slabs[0];
  const ColumnWindow all{0, like.cols};
  Result<Slab> taken = [&] {
    if (at == rank - 2)
      return gather_slab(
          state.like(), like.count, length,
          [&](std::int64_t matrix, std::int64_t row) -> RowPick {
            const Located& from = places[static_cast<std::size_t>(row)];
            if (from.slab == nullptr) return {};
            return {&from.slab->weight_of(matrix), from.slab->first_row(matrix) + from.index};
          },
          all, kTake);
    std::int64_t outer = 1, inner = 1;
    for (std::size_t i = 0; i < at; ++i) outer *= state.dims[i];
    for (std::size_t i = at + 1; i + 2 < rank; ++i) inner *= state.dims[i];
    return gather_slab(
        state.like(), outer * length * inner, like.rows,
        [&](std::int64_t matrix, std::int64_t row) -> RowPick {
          const Located& from = places[static_cast<std::size_t>(matrix / inner % length)];
          if (from.slab == nullptr) return {};
          const std::int64_t index =
              (matrix / inner / length * from.length + from.index) * inner + matrix % inner;
          return {&from.slab->weight_of(index), from.slab->first_row(index) + row};
        },
        all, kTake);
  }();
  if (taken) {
    taken->skip = like.skip;
    taken->used = like.used;
  }
  return taken;
}

// The error of a constructor, said of walk.
template <class T>
Result<T> renamed(Result<T> made) {
  if (made) return made;
  Error error = std::move(made).error();
  const std::size_t end = std::min(error.message.find(": "), error.message.size());
  return std::unexpected(Error{error.code, fmt::format("{}{}", kWalk, error.message.substr(end))});
}

// The named cases rebuild by their constructors.
struct RebuildCase {
  std::string_view name;
  const PartVisitor& visit;
  const WeightState& state;

  Result<Weight> operator()(const Mxfp4Parts& parts) const {
    PACKSTONE_TRY(ByteArray codes, visit(name, "codes", parts.codes));
    PACKSTONE_TRY(ByteArray scales, visit(name, "scales", parts.scales));
    return renamed(Weight::mxfp4(std::move(codes), std::move(scales)));
  }
  Result<Weight> operator()(const Mxfp4BlocksParts& parts) const {
    PACKSTONE_TRY(ByteArray blocks, visit(name, "blocks", parts.blocks));
    return renamed(Weight::mxfp4_blocks(std::move(blocks)));
  }
  Result<Weight> operator()(const Q8_0Parts& parts) const {
    PACKSTONE_TRY(ByteArray blocks, visit(name, "blocks", parts.blocks));
    return renamed(Weight::q8_0(std::move(blocks)));
  }
  Result<Weight> operator()(const Q4_KParts& parts) const {
    PACKSTONE_TRY(ByteArray blocks, visit(name, "blocks", parts.blocks));
    return renamed(Weight::q4_k(std::move(blocks)));
  }
  Result<Weight> operator()(const Q6_KParts& parts) const {
    PACKSTONE_TRY(ByteArray blocks, visit(name, "blocks", parts.blocks));
    return renamed(Weight::q6_k(std::move(blocks)));
  }
  Result<Weight> operator()(const PlaneParts&) const {
    PACKSTONE_TRY(WeightState made, rebuild_slabs());
    return WeightMaker::make(std::move(made));
  }

  // Every part of every device, each with the shape that it had.
  Result<WeightState> rebuild_slabs() const {
    WeightState made = state;
    for (std::size_t d = 0; d < made.slabs.size(); ++d) {
      std::size_t index = 0;
      const WeightParts all =
          slab_parts(WeightCase::kPlanes, state.slabs[d], state.local_dims(static_cast<int>(d)),
                     static_cast<int>(d));
      const PlaneParts& old = std::get<PlaneParts>(all);
      for (PackedWeight& packed : made.slabs[d].packed) {
        PACKSTONE_TRY(PackedWeight one, rebuild(packed, old, index));
        packed = std::move(one);
      }
    }
    return made;
  }

  Result<PackedWeight> rebuild(const PackedWeight& packed, const PlaneParts& old,
                               std::size_t& index) const {
    std::vector<ByteSpan> planes;
    auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
    for (int plane = 0; plane < packed.plane_count(); ++plane, ++index) {
      const NamedPart& part = old.planes[index];
      PACKSTONE_TRY(ByteArray changed, visit(name, part.name, part.bytes));
      if (changed.dims != part.bytes.dims)
        return fail(ErrorCode::kInvalidInput, kWalk, part.name, "shape " + dims_text(changed.dims),
                    dims_text(part.bytes.dims));
      planes.push_back(changed.bytes);
      owners->push_back(std::move(changed.owner));
    }
    return renamed(PackedWeight::bind(packed.id(), packed.shape(), packed.params(),
                                      std::move(planes), std::move(owners), name));
  }
};

}  // namespace

Result<Slab> gather_slab(const PackedWeight& like, std::int64_t count, std::int64_t rows,
                         const std::function<RowPick(std::int64_t, std::int64_t)>& pick,
                         ColumnWindow window, std::string_view where) {
  const bool stack = rows_are_bytes(like) || count == 0;
  Slab slab{{}, count,       stack ? std::max<std::int64_t>(count, 1) : 1, rows, window.count,
            0,  window.count};
  const std::int64_t weights = stack ? 1 : count;
  for (std::int64_t i = 0; i < weights; ++i) {
    PACKSTONE_TRY(
        PackedWeight packed,
        gather_rows(
            like, stack ? count * rows : rows,
            [&](std::int64_t row) { return stack ? pick(row / rows, row % rows) : pick(i, row); },
            window, where));
    slab.packed.push_back(std::move(packed));
  }
  return slab;
}

Result<Weight> take(const Weight& w, int axis, std::span<const std::int64_t> positions) {
  const WeightState& state = w.state();
  const auto at = find_axis(axis, state.dims.size());
  if (!at || *at == static_cast<int>(state.dims.size()) - 1)
    return fail(ErrorCode::kInvalidInput, kTake, w.case_name(),
                fmt::format("axis {} of {}", axis, dims_text(state.dims)),
                "an axis before the last", "blocks lie along k and cannot be taken apart");
  WeightState made{state.kind, state.dims, state.placement, state.ends, {}};
  made.dims[static_cast<std::size_t>(*at)] = static_cast<std::int64_t>(positions.size());
  if (!element_count(made.dims))
    return fail(ErrorCode::kInvalidInput, kTake, "positions", fmt::format("{}", positions.size()),
                "a result of at most 2^48 elements");
  try {
    if (!state.is_cut() || state.placement.axis == *at) {
      made.ends.clear();
      if (state.is_cut()) made.placement.axis = Placement::kWhole;
      PACKSTONE_TRY(Slab slab, take_slab(state, *at, positions));
      made.slabs.push_back(std::move(slab));
      return WeightMaker::make(std::move(made));
    }
    for (std::size_t d = 0; d < state.slabs.size(); ++d) {
      const WeightState local{
          state.kind, state.local_dims(static_cast<int>(d)), {}, {}, {state.slabs[d]}};
      PACKSTONE_TRY(Slab slab, take_slab(local, *at, positions));
      made.slabs.push_back(std::move(slab));
    }
    return WeightMaker::make(std::move(made));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kTake, w.case_name(), "too little memory", "the taken rows");
  }
}

Result<Weight> walk(const Weight& w, const PartVisitor& visit) {
  const WeightState& state = w.state();
  const RebuildCase rebuild{w.case_name(), visit, state};
  if (state.is_cut()) return rebuild(PlaneParts{});
  return std::visit(rebuild, w.parts());
}

}  // namespace packstone
