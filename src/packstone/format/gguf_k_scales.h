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

#include "packstone/format/group_params.h"

namespace packstone {

struct KScaleParams : SuperScaleOffsetParams<6> {
  static constexpr PieceList block_param(int which, int unit) {
    if (which < 2) return one_piece(0, 16u * which, 16);
    const int first = 4 + 4 * (which - 2);  // byte of scale[0] or minimum[0]
    if (unit < 4) return one_piece(0, 8u * (first + unit), 6);
    return pieces(Piece{8u * (8 + unit) + 4 * (which - 2), 0, 4},
                  Piece{8u * (first + unit - 4) + 6, 0, 2});
  }
};

}  // namespace packstone
