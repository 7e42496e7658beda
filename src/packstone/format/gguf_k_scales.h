// The parameters that Q4_K and Q5_K share: d and dmin (binary16) at bytes 0 and 2 of the block,
// then 8 scales and 8 minimums of 6 bits in 12 bytes S at byte 4.
//
//   +---------------+---------------------+---------------------+------------------------------+
//   | byte of S     | 0..3                | 4..7                | 8..11                        |
//   | bits 0..5/0..3| scale[j], j = 0..3  | minimum[j], j = 0..3| low 4 of scale[j], j = 4..7  |
//   | bits 6..7/4..7| high 2 of scale[j+4]| high 2 of minimum[j+4] | low 4 of minimum[j]       |
//   +---------------+---------------------+---------------------+------------------------------+
//
// Source: ggml 0.26, ggml-quants.c get_scale_min_k4. Device-safe.
#pragma once

#include <array>

#include "packstone/format/format.h"

namespace packstone {

inline constexpr std::array<ParamSpec, 4> kKScaleParams{{
    {ParamKind::kSuperScale, ParamCoding::kF16, 16},
    {ParamKind::kSuperOffset, ParamCoding::kF16, 16},
    {ParamKind::kScale, ParamCoding::kUnsigned, 6},
    {ParamKind::kOffset, ParamCoding::kUnsigned, 6},
}};

// Place of parameter `which` of group `unit` (0..7) in the block.
constexpr PieceList k_scale_param(int which, int unit) {
  if (which < 2) return one_piece(0, 16u * which, 16);
  const int first = 4 + 4 * (which - 2);  // byte of scale[0] or minimum[0]
  if (unit < 4) return one_piece(0, 8u * (first + unit), 6);
  return pieces(Piece{8u * (8 + unit) + 4 * (which - 2), 0, 4},
                Piece{8u * (first + unit - 4) + 6, 0, 2});
}

// scale = d * scale[j], offset = -(dmin * minimum[j]); both exact: 11 + 6 bits.
constexpr GroupValues k_scale_values(const RawParams& raw) {
  const float d = decode_float(FloatType::kF16, raw.pattern[0]);
  const float dmin = decode_float(FloatType::kF16, raw.pattern[1]);
  return {d * static_cast<float>(raw.pattern[2]), -(dmin * static_cast<float>(raw.pattern[3])), 0};
}

}  // namespace packstone
