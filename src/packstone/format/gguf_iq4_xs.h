// GGUF IQ4_XS, 4.25 bits per weight. Producer: ggml (ggml-common.h block_iq4_xs, type id 23).
//
//   one block = 256 weights in 8 groups of 32 = 136 bytes
//   +--------+----------------+----------------+-----------+
//   | d 0, 1 | scales_h 2, 3  | scales_l 4..7  | qs 8..135 |
//   +--------+----------------+----------------+-----------+
//   scale of group g, 6 bits: low 4 nibble g % 2 (0 = low) of scales_l[g / 2], high 2 bits 2 g of
//   the 16-bit scales_h
//   weight i: g = i / 32, nibble (i % 32) / 16 of qs[16 g + i % 16]
//
// Decode: w = (d * (scale - 32)) * level(q), 16 whole levels (gguf_iq4_levels.h). Exact: 11 + 5 + 7
// bits (scale - 32 has 5 bits, or is -32). Legal: cols a multiple of 256. Unspecified by
// the producer: nothing; every pattern decodes.
#pragma once

#include "packstone/format/gguf_iq4_levels.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufIQ4_XS : GgufRows<GgufIQ4_XS, 256, 136, 32>, SuperScaleParams<6, 32, 0> {
  static constexpr std::string_view kName = "gguf.iq4_xs";
  static constexpr std::string_view kLayout = "gguf:IQ4_XS";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq4_xs";
  using Scheme = Iq4Scheme;
  static constexpr int kCodeBits = 4;

  static constexpr PieceList block_code(int i) {
    return pieces(split_nibble(8 + 16 * (i / 32), i % 32));
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return pieces(Piece{8u * 4 + 4 * static_cast<std::uint64_t>(unit), 0, 4},
                  Piece{8u * 2 + 2 * static_cast<std::uint64_t>(unit), 0, 2});
  }
};

static_assert(CodedFormat<GgufIQ4_XS>);
static_assert(proves_bijection<GgufIQ4_XS, 136 * 8>({1, 256}, {}));

}  // namespace packstone
