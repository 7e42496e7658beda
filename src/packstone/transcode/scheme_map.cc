#include "packstone/transcode/scheme_map.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

bool fits(CodeRange range, std::int64_t shift, int bits) {
  return range.low + shift >= 0 && range.high + shift < (std::int64_t{1} << bits);
}

}  // namespace

LinearSide linear_side(FormatId id, const FormatParams& params) {
  const FormatInfo& info = format_info(id);
  const RawParams raw;
  GroupValues values;
  decode_params(id, params, {&raw, 1}, {&values, 1});
  return {id, info.code_bits, info.has_offset, values.center, group_cols(id, params)};
}

const char* group_rule(const LinearSide& source, const LinearSide& target) {
  if (source.group_cols % target.group_cols == 0) return nullptr;
  const auto sizes = format_info(target.id).group_sizes;
  const bool home = std::ranges::find(sizes, source.group_cols) != sizes.end();
  if (home && target.group_cols % source.group_cols == 0) return nullptr;
  return "a group that the target's groups divide";
}

MappedGroup map_group(const LinearSide& source, const GroupValues& group, CodeRange range,
                      const LinearSide& target) {
  MappedGroup mapped;
  mapped.values = {group.scale, group.offset, target.center};
  std::int64_t shift = 0;
  if (target.has_offset) {
    if (!fits(range, 0, target.code_bits) && !source.has_offset)
      shift = (std::int64_t{1} << (target.code_bits - 1)) - group.center;
    const std::int64_t moved = target.center - shift - group.center;
    if (moved != 0)
      mapped.values.offset =
          static_cast<float>(static_cast<double>(group.offset) +
                             static_cast<double>(group.scale) * static_cast<double>(moved));
  } else {
    double zero = group.center;
    if (group.offset != 0) zero -= static_cast<double>(group.offset) / group.scale;
    if (!(std::abs(zero) <= 1 << 20) || zero != std::floor(zero)) {
      mapped.fault = GroupFault::kZeroPoint;
      return mapped;
    }
    shift = target.center - static_cast<std::int64_t>(zero);
    mapped.values.offset = kNoOffset;
  }
  mapped.shift = static_cast<std::int32_t>(shift);
  if (!fits(range, shift, target.code_bits)) mapped.fault = GroupFault::kCodeRange;
  mapped.same_formula = shift == 0 && group.center == target.center &&
                        std::bit_cast<std::uint32_t>(group.offset) ==
                            std::bit_cast<std::uint32_t>(mapped.values.offset);
  return mapped;
}

}  // namespace packstone
