// The closed table of exact maps between scheme families, and the map of one group of a linear
// scheme. Formats do not occur here: a format takes part through its scheme, its center, whether it
// has an offset, and its encode rule.
#pragma once

#include <cstdint>

#include "packstone/format/packed_weight.h"

namespace packstone {

enum class SchemeMap {
  kDecode,  // every value is stored as a float that has it
  kLinear,  // codes move by a whole number per group, scale and offset are stored anew
  kNone,    // values would have to be quantized
};

// The map from one family to another.
constexpr SchemeMap scheme_map(SchemeKind source, SchemeKind target) {
  constexpr SchemeMap kTable[3][3] = {
      // to float          linear              table
      {SchemeMap::kDecode, SchemeMap::kNone, SchemeMap::kNone},    // from float
      {SchemeMap::kDecode, SchemeMap::kLinear, SchemeMap::kNone},  // from linear
      {SchemeMap::kDecode, SchemeMap::kNone, SchemeMap::kNone},    // from table
  };
  return kTable[static_cast<int>(source)][static_cast<int>(target)];
}

// What the map of a group has to know of a linear format.
struct LinearSide {
  FormatId id{};
  int code_bits = 0;
  bool has_offset = false;
  std::int32_t center = 0;  // of every group
  std::int64_t group_cols = 0;
};

// linear_side(id, params) is what map_group has to know of a format. Errors: none.
LinearSide linear_side(FormatId id, const FormatParams& params);

// Whether groups can be mapped, from headers alone: nullptr, or why not. The target's group divides
// the source's, or is a multiple and the target could also keep the source's group (then neighbours
// must have equal parameters).
const char* group_rule(const LinearSide& source, const LinearSide& target);

// Why one group cannot be mapped.
enum class GroupFault : std::uint8_t {
  kNone,
  kCodeRange,
  kZeroPoint,
  kNeighbours,
  kEncode,
  kValue
};

struct CodeRange {
  std::uint32_t low = 0, high = 0;
};

struct MappedGroup {
  GroupFault fault = GroupFault::kNone;
  std::int32_t shift = 0;     // target code = source code + shift
  GroupValues values;         // of the target
  bool same_formula = false;  // both decode with the same numbers: equal values by construction
};

// map_group(source, group, range, target): shift and values so that, as real numbers,
//     scale (q - center) + offset  =  scale' (q + shift - center') + offset',   scale' = scale.
// Unless same_formula, roundings may differ: the caller compares decoded values.
// A target without offset needs the group's zero, center - offset / scale, to be whole. A target
// with offset keeps the codes; those of a source without offset it centers where they do not fit.
MappedGroup map_group(const LinearSide& source, const GroupValues& group, CodeRange range,
                      const LinearSide& target);

}  // namespace packstone
