// GGUF IQ1_S, 1.5625 bits per weight. Producer: ggml (ggml-common.h block_iq1_s, type id 19).
//
//   one block = 256 weights in 8 groups of 32 = 50 bytes
//   +--------+----------+------------------------------------------------------------+
//   | d 0, 1 | qs 2..33 | qh 34..49: 16 bits a group: 4 x 3 high bits of an index,   |
//   |        |          | 3 bits of scale, then the sign of delta                    |
//   +--------+----------+------------------------------------------------------------+
//   weight i: e = i / 8: vector of kIq1Grid with low 8 index bits qs[e], high 3 from field e % 4 of
//   the group's qh; coordinate i % 8
//
// ggml: w = dl * (grid + delta), dl = d * (2 scale + 1), grid -1, 0 or 1, delta 1/8 or -1/8.
// Here: w = (dl / 8) * level, level = 8 grid + 1 or 8 grid - 1, code = level + 16, 5 bits.
// Both are the same binary32 number: grid + delta is level / 8 exactly; dl has at most 11 + 4 bits,
// dl / 8 moves its exponent only (d is at least 2^-24, or zero, or not finite); and the product has
// at most 15 + 4 bits, so it never rounds.
// Legal: cols a multiple of 256. Unspecified by the producer: nothing; every pattern decodes. Read
// and run only: no block is written.
#pragma once

#include "packstone/format/gguf_iq_grids.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufIQ1_S : GgufRows<GgufIQ1_S, 256, 50, 32>, OddSuperScaleParams<3, 1, 16> {
  static constexpr std::string_view kName = "gguf.iq1_s";
  static constexpr std::string_view kLayout = "gguf:IQ1_S";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq1_s";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 5;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int e = 0; e < 32; ++e) {
      const unsigned word = block_u16(block + 34 + 2 * (e / 4));
      const unsigned high = word >> (3 * (e % 4)) & 7u;
      iq1_codes(block[2 + e] | high << 8, word >> 15 != 0, codes + 8 * e);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return one_piece(0, 8u * (34 + 2 * unit) + 12, 3);
  }
};

static_assert(CodedFormat<GgufIQ1_S>);
static_assert(proves_block_params<GgufIQ1_S>());

}  // namespace packstone
