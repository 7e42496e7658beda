// The closed table of exact maps between scheme families, and the map of one group of a linear
// scheme. Formats do not occur here: a format takes part through its scheme, its center, whether it
// has an offset, and its encode rule.
#pragma once

#include <cstdint>

#include "packstone/format/packed_weight.h"

namespace packstone {

enum class SchemeMap {
  kDecode,      // every value is stored as a float that has it
  kLinear,      // codes move by a whole number per group, scale and offset are stored anew; a table
                // of whole multiples of a unit counts as linear on the way out
  kSameTable,   // codes as they are, group values stored anew
  kReciprocal,  // codes as they are, exact reciprocals of the scales stored
  kNone,        // values would have to be quantized
};

// The map from one format's scheme to another's.
constexpr SchemeMap scheme_map(const FormatInfo& source, const FormatInfo& target) {
  if (target.scheme == SchemeKind::kFloat) return SchemeMap::kDecode;
  if (target.scheme == SchemeKind::kTable) {
    if (source.scheme != SchemeKind::kTable) return SchemeMap::kNone;
    if (source.table == target.table) return SchemeMap::kSameTable;
    return source.table == target.reciprocal_table || target.table == source.reciprocal_table
               ? SchemeMap::kReciprocal
               : SchemeMap::kNone;
  }
  const bool whole = source.scheme == SchemeKind::kLinear || !source.integer_levels.empty();
  return whole ? SchemeMap::kLinear : SchemeMap::kNone;
}

// What the map of a group has to know of a format that is linear, or a table of whole levels: the
// code of level l is then l - least level.
struct LinearSide {
  FormatId id{};
  int code_bits = 0;
  bool has_offset = false;
  int zero_bits = 0;        // of a stored zero point; 0: the center is fixed
  std::int32_t center = 0;  // of every group, with zero_bits 0
  std::int64_t group_cols = 0;
  std::uint32_t code_max = 0;
  std::span<const std::int16_t> levels;  // of a table; else empty
  float unit = 1.0f;
};

// linear_side(id, params) is what map_group has to know of a format. Errors: none.
LinearSide linear_side(FormatId id, const FormatParams& params);

// Whether groups can be mapped, from headers alone: nullptr, or why not. The target's group divides
// the source's, or is a multiple and the target could also keep the source's group or has only the
// whole row (then neighbours must have equal parameters).
const char* group_rule(const LinearSide& source, const LinearSide& target);

// Why one group cannot be mapped.
enum class GroupFault : std::uint8_t {
  kNone,
  kCodeRange,
  kZeroPoint,
  kNeighbours,
  kEncode,
  kValue,
  kShared,
  kReciprocal,
  kNotFinite
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
// A target without offset needs the group's zero, center - offset / scale, to be whole; one that
// stores zero points moves codes only where the zero would not fit. A target with offset keeps the
// codes; those of a source without offset it centers where they do not fit.
MappedGroup map_group(const LinearSide& source, const GroupValues& group, CodeRange range,
                      const LinearSide& target);

}  // namespace packstone
