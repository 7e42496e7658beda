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
  LinearSide side;
  side.id = id;
  side.has_offset = info.has_offset;
  side.zero_bits = info.zero_bits;
  side.group_cols = group_cols(id, params);
  if (info.scheme == SchemeKind::kTable && !info.integer_levels.empty()) {
    const auto [low, high] = std::ranges::minmax(info.integer_levels);
    side.levels = info.integer_levels;
    side.unit = info.unit;
    side.center = -low;
    side.code_max = static_cast<std::uint32_t>(high - low);
    side.code_bits = std::bit_width(side.code_max);
    return side;
  }
  const RawParams raw;
  GroupValues values;
  decode_params(id, params, {&raw, 1}, {&values, 1});
  side.center = info.zero_bits == 0 ? values.center : 0;
  side.code_bits = info.code_bits;
  side.code_max = static_cast<std::uint32_t>((std::uint64_t{1} << info.code_bits) - 1);
  return side;
}

const char* group_rule(const LinearSide& source, const LinearSide& target) {
  if (source.group_cols % target.group_cols == 0) return nullptr;
  const auto sizes = format_info(target.id).group_sizes;
  const bool whole_row = sizes.size() == 1 && sizes[0] == kWholeRow;
  const bool home = whole_row || std::ranges::find(sizes, source.group_cols) != sizes.end();
  if (home && target.group_cols % source.group_cols == 0) return nullptr;
  return "a group that the target's groups divide";
}

namespace {

// The smallest move of codes that fits both the codes and a stored zero point; false when none
// does.
bool shift_for_zero(CodeRange range, std::int64_t zero, const LinearSide& target,
                    std::int64_t& shift) {
  const std::int64_t code_max = (std::int64_t{1} << target.code_bits) - 1;
  const std::int64_t zero_max = (std::int64_t{1} << target.zero_bits) - 1;
  const std::int64_t low = std::max(-std::int64_t{range.low}, -zero);
  const std::int64_t high = std::min(code_max - range.high, zero_max - zero);
  shift = std::clamp(std::int64_t{0}, std::min(low, high), high);
  return low <= high;
}

}  // namespace

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
    const auto whole = static_cast<std::int64_t>(zero);
    if (target.zero_bits == 0) {
      shift = target.center - whole;
    } else {
      if (!shift_for_zero(range, whole, target, shift)) {
        mapped.fault = GroupFault::kCodeRange;
        return mapped;
      }
      mapped.values.center = static_cast<std::int32_t>(whole + shift);
    }
    mapped.values.offset = kNoOffset;
  }
  mapped.shift = static_cast<std::int32_t>(shift);
  if (!fits(range, shift, target.code_bits)) mapped.fault = GroupFault::kCodeRange;
  mapped.same_formula = source.levels.empty() && shift == 0 &&
                        group.center == mapped.values.center &&
                        std::bit_cast<std::uint32_t>(group.offset) ==
                            std::bit_cast<std::uint32_t>(mapped.values.offset);
  return mapped;
}

}  // namespace packstone
