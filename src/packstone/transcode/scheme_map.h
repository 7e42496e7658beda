// The closed table of exact maps between scheme families, and the map of one group of a linear
// scheme. Formats do not occur here: a format takes part through its scheme, its center, whether it
// has an offset, and its encode rule.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "packstone/format/packed_weight.h"

namespace packstone {

enum class SchemeMap {
  kDecode,     // every value is stored as a float that has it
  kLinear,     // codes move by a whole number per group, scale and offset are stored anew; a table
               // of whole multiples of a unit counts as linear on the way out
  kSameTable,  // codes as they are, group values stored anew
  kNone,       // values would have to be quantized
};

// The map from one format's scheme to another's.
constexpr SchemeMap scheme_map(const FormatInfo& source, const FormatInfo& target) {
  if (target.scheme == SchemeKind::kFloat) return SchemeMap::kDecode;
  if (target.scheme == SchemeKind::kTable)
    return source.table == target.table ? SchemeMap::kSameTable : SchemeMap::kNone;
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
  kShared
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

namespace detail {

inline bool fits(CodeRange range, std::int64_t shift, int bits) {
  return range.low + shift >= 0 && range.high + shift < (std::int64_t{1} << bits);
}

// The smallest move of codes that fits both the codes and a stored zero point; false when none
// does.
inline bool shift_for_zero(CodeRange range, std::int64_t zero, const LinearSide& target,
                           std::int64_t& shift) {
  const std::int64_t code_max = (std::int64_t{1} << target.code_bits) - 1;
  const std::int64_t zero_max = (std::int64_t{1} << target.zero_bits) - 1;
  const std::int64_t low = std::max(-std::int64_t{range.low}, -zero);
  const std::int64_t high = std::min(code_max - range.high, zero_max - zero);
  shift = std::clamp(std::int64_t{0}, std::min(low, high), high);
  return low <= high;
}

}  // namespace detail

// map_group(source, group, range, target): shift and values so that, as real numbers,
//     scale (q - center) + offset  =  scale' (q + shift - center') + offset',   scale' = scale.
// Unless same_formula, roundings may differ: the caller compares decoded values.
// A target without offset needs the group's zero, center - offset / scale, to be whole; one that
// stores zero points moves codes only where the zero would not fit. A target with offset keeps the
// codes; those of a source without offset it centers where they do not fit.
inline MappedGroup map_group(const LinearSide& source, const GroupValues& group, CodeRange range,
                             const LinearSide& target) {
  MappedGroup mapped;
  mapped.values = {group.scale, group.offset, target.center};
  std::int64_t shift = 0;
  if (target.has_offset) {
    if (!detail::fits(range, 0, target.code_bits) && !source.has_offset)
      shift = (std::int64_t{1} << (target.code_bits - 1)) - group.center;
    const std::int64_t moved = target.center - shift - group.center;
    if (moved != 0)
      mapped.values.offset =
          static_cast<float>(static_cast<double>(group.offset) +
                             static_cast<double>(group.scale) * static_cast<double>(moved));
  } else {
    double zero = group.center;
    if (group.offset != 0) zero -= static_cast<double>(group.offset) / group.scale;
    if (!(std::abs(zero) <= 1 << 20) ||
        zero != static_cast<double>(static_cast<std::int64_t>(zero))) {
      mapped.fault = GroupFault::kZeroPoint;
      return mapped;
    }
    const auto whole = static_cast<std::int64_t>(zero);
    if (target.zero_bits == 0) {
      shift = target.center - whole;
    } else {
      if (!detail::shift_for_zero(range, whole, target, shift)) {
        mapped.fault = GroupFault::kCodeRange;
        return mapped;
      }
      mapped.values.center = static_cast<std::int32_t>(whole + shift);
    }
    mapped.values.offset = kNoOffset;
  }
  mapped.shift = static_cast<std::int32_t>(shift);
  if (!detail::fits(range, shift, target.code_bits)) mapped.fault = GroupFault::kCodeRange;
  mapped.same_formula = source.levels.empty() && shift == 0 &&
                        group.center == mapped.values.center &&
                        std::bit_cast<std::uint32_t>(group.offset) ==
                            std::bit_cast<std::uint32_t>(mapped.values.offset);
  return mapped;
}

}  // namespace packstone
