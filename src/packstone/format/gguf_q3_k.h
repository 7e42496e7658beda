// GGUF Q3_K, 3.4375 bits per weight. Producer: ggml (ggml-common.h block_q3_K, type id 11).
//
//   one block = 256 weights in 16 groups of 16 = 110 bytes
//   +-------------+-----------+----------------+-----------+
//   | hmask 0..31 | qs 32..95 | scales 96..107 | d 108,109 |
//   +-------------+-----------+----------------+-----------+
//   weight i: h = i / 128, s = (i % 128) / 32, l = i % 32
//     low 2 bits: bits 2s, 2s + 1 of qs[32 h + l];  high bit: bit 4h + s of hmask[l]
//   scale of group g, 6 bits: low 4: nibble g / 8 of scales[g % 8];
//                             high 2: bits 2 (g / 4), 2 (g / 4) + 1 of scales[8 + g % 4]
//
// Decode: w = (d * (scale - 32)) * (q - 4). Exact in binary32: 11 + 6 + 3 bits.
// Legal: cols a multiple of 256. A block of zero bytes decodes to +0.0 or -0.0.
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ3_K : GgufRows<GgufQ3_K, 256, 110, 16>, SuperScaleParams<6, 32, 4> {
  static constexpr std::string_view kName = "gguf.q3_k";
  static constexpr std::string_view kLayout = "gguf:Q3_K";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q3_K";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 3;

  static constexpr PieceList block_code(int i) {
    const int h = i / 128, s = (i % 128) / 32, l = i % 32;
    return pieces(Piece{8u * (32 + 32 * h + l) + 2 * s, 0, 2}, Piece{8u * l + 4 * h + s, 0, 1});
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 8u * 108, 16);
    return pieces(Piece{8u * (96 + unit % 8) + 4 * (unit / 8), 0, 4},
                  Piece{8u * (104 + unit % 4) + 2 * (unit / 4), 0, 2});
  }
};

static_assert(CodedFormat<GgufQ3_K>);
static_assert(proves_bijection<GgufQ3_K, 110 * 8>({1, 256}, {}));

}  // namespace packstone
