// GGUF IQ1_M, 1.75 bits per weight. Producer: ggml (ggml-common.h block_iq1_m, type id 29).
//
//   one block = 256 weights in 16 groups of 16 = 56 bytes
//   +----------+-----------+---------------------------------------------------------------+
//   | qs 0..31 | qh 32..47 | scales 48..55: 4 words of 16 bits: 4 x 3 bits of scale, then  |
//   |          |           | 4 bits of d (word 0 has the lowest)                           |
//   +----------+-----------+---------------------------------------------------------------+
//   weight i: e = i / 8: vector of kIq1Grid with low 8 index bits qs[e]; nibble e % 2 (0 = low) of
//   qh[e / 2] has the high 3 index bits, then the sign of delta of these 8; coordinate i % 8
//   scale of group g: field g % 4 of word g / 4
//   d: binary16
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

struct GgufIQ1_M : GgufRows<GgufIQ1_M, 256, 56, 16>, OddSuperScaleParams<3, 1, 16> {
  static constexpr std::string_view kName = "gguf.iq1_m";
  static constexpr std::string_view kLayout = "gguf:IQ1_M";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq1_m";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 5;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int e = 0; e < 32; ++e) {
      const unsigned nibble = static_cast<unsigned>(block[32 + e / 2]) >> (4 * (e % 2));
      iq1_codes(block[e] | (nibble & 7u) << 8, (nibble & 8u) != 0, codes + 8 * e);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0)
      return pieces(Piece{8u * 48 + 12, 0, 4}, Piece{8u * 50 + 12, 0, 4}, Piece{8u * 52 + 12, 0, 4},
                    Piece{8u * 54 + 12, 0, 4});
    return one_piece(0, 8u * (48 + 2 * (unit / 4)) + 3 * static_cast<std::uint64_t>(unit % 4), 3);
  }
};

static_assert(CodedFormat<GgufIQ1_M>);
static_assert(proves_block_params<GgufIQ1_M>());

}  // namespace packstone
