// What a Weight holds, and the few ways this room makes one. Private to the room.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "packstone/weight/slab.h"
#include "packstone/weight/weight.h"

namespace packstone {

enum class WeightCase : std::uint8_t { kMxfp4, kMxfp4Blocks, kQ8_0, kQ4_K, kQ6_K, kPlanes };

struct WeightState {
  WeightCase kind = WeightCase::kPlanes;
  Dims dims;  // logical [..., n, k]
  Placement placement;
  // Cut: device d has [ends[d], ends[d + 1]) of the axis.
  std::vector<std::int64_t> ends;
  // One per device where cut, else one that all devices read.
  std::vector<Slab> slabs;

  const Slab& slab(int device) const {
    return slabs[slabs.size() == 1 ? 0 : static_cast<std::size_t>(device)];
  }
  const PackedWeight& like() const { return slabs[0].packed[0]; }
  bool is_cut() const { return placement.axis != Placement::kWhole; }
  // The logical dims of what device d has.
  Dims local_dims(int device) const;
};

// Product of all axes but the last two.
std::int64_t matrix_count(std::span<const std::int64_t> dims);

struct WeightMaker {
  static Weight make(WeightState state) {
    return Weight(std::make_shared<const WeightState>(std::move(state)));
  }
};

// "q8_0", ... or the format's name.
std::string_view case_name_of(const WeightState& state);

// The parts of one slab; `dims` are its logical dims.
WeightParts slab_parts(WeightCase kind, const Slab& slab, const Dims& dims, int device);

// axis counted from either end, or nothing when the rank has no such axis.
std::optional<int> find_axis(int axis, std::size_t rank);

// Gathers `count` matrices of `rows` rows; pick(matrix, row) says where each comes from.
Result<Slab> gather_slab(const PackedWeight& like, std::int64_t count, std::int64_t rows,
                         const std::function<RowPick(std::int64_t, std::int64_t)>& pick,
                         ColumnWindow window, std::string_view where);

}  // namespace packstone
