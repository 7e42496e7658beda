#include "packstone/transcode/scheme_map.h"

#include <algorithm>
#include <bit>

#include "packstone/transcode/unpack.h"

namespace packstone {

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

}  // namespace packstone
