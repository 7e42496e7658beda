// Where weights and values lie on a set of host devices, and what may be cut how.
#pragma once

#include <vector>

#include "packstone/weight/weight.h"

namespace packstone {

// Values on a device set: whole on every device, cut along one axis, or terms of a sum.
struct PlacedArray {
  ValueType type = ValueType::kF32;
  Dims dims;
  Placement placement;
  std::vector<std::int64_t> ends;  // cut: device d has [ends[d], ends[d + 1]) of the axis
  // Terms, one per device, at the type that the sum is made in; -0.0 where a device adds nothing.
  bool terms = false;
  std::vector<Array> shards;  // one per device; one in all where whole

  // whole() puts the windows together, or adds the terms in the order of the devices and rounds
  // once. Errors: kExhausted.
  Result<Array> whole() const;
};

struct PlacedIds {
  Dims dims;
  Placement placement;
  std::vector<std::int64_t> ends;
  std::vector<std::vector<std::int64_t>> shards;
};

// Equal windows, or where devices do not divide the axis, windows that differ by one unit:
// [0, ..., length], devices + 1 ends, all multiples of unit but the last.
std::vector<std::int64_t> window_ends(std::int64_t length, int devices, std::int64_t unit = 1);

// place_array(x, placement, ends): x whole on every device or cut at `ends` (window_ends of the
// axis when empty). place_ids: the same. Errors: kInvalidInput for an axis or ends that do not fit.
Result<PlacedArray> place_array(const ArrayView& x, Placement placement,
                                std::vector<std::int64_t> ends = {});
Result<PlacedIds> place_ids(const IdsView& ids, Placement placement,
                            std::vector<std::int64_t> ends = {});

// plan_cut(format, params, dims, placement): the windows that place would cut, and whether it may,
// from the header alone: no byte is read, nothing allocated for a weight. Along k the devices must
// divide the blocks, so that no device needs a part of another's block; along n windows are whole
// runs of rows that the layout can store; a leading axis may be cut anywhere.
// Errors: kInvalidInput naming the axis, the blocks, and what would work.
struct CutPlan {
  std::vector<std::int64_t> ends;
  std::int64_t unit = 1;  // values along the axis that must stay together
};
Result<CutPlan> plan_cut(FormatId format, const FormatParams& params,
                         std::span<const std::int64_t> dims, Placement placement);

// place(w, placement) is w with its parts moved there, as bytes; every device of a cut owns
// what it has. Values do not change. Errors: as plan_cut, before anything is allocated; and
// gather_rows' where a layout cannot be cut so.
Result<Weight> place(const Weight& w, Placement placement);

// Where one part lies; parts are named as in WeightParts.
struct PartPlacement {
  std::string_view part;
  Placement placement;
};

// place_parts(w, parts) is place with a placement for every part. Legal: one placement for all; and
// of the case mxfp4, codes cut along k beside scales whole on the same devices, where the devices
// divide k / 2, the bytes of a row: then codes may be cut inside a block.
// Errors: as place; kInvalidInput naming the part that lies apart from its codes, and where it
// would have to lie.
Result<Weight> place_parts(const Weight& w, std::span<const PartPlacement> parts);

// dequant with the result cut as w is.
Result<PlacedArray> dequant_placed(const Weight& w, ValueType type, ThreadPool& pool);

}  // namespace packstone
