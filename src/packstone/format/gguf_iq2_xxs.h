// GGUF IQ2_XXS, 2.0625 bits per weight. Producer: ggml (ggml-common.h block_iq2_xxs, type id 16).
//
//   one block = 256 weights in 8 groups of 32 = 66 bytes: d binary16, then 8 bytes a group
//   +------+----------------------+------------------------------------------+
//   | byte | 0..3                 | 4..7 (32 bits, little-endian)            |
//   |      | 4 indices, kIq2XxsGrid | 4 x 7 sign bits, then 4 bits of scale  |
//   +------+----------------------+------------------------------------------+
//   weight i: e = (i % 32) / 8: coordinate i % 8 of vector e, sign bit i % 8 of even_signs(field e)
//
// Decode: w = (d * (2 scale + 1) / 8) * level. Exact in binary32: 11 + 5 + 6 bits, and no exponent
// leaves the range (d is at least 2^-24). ggml's (d * (0.5 + scale) * 0.25) * grid * sign is the
// same number, by exact steps.
// Legal: cols a multiple of 256. Unspecified by the producer: nothing; every pattern decodes. Read
// and run only: no block is written.
#pragma once

#include "packstone/format/gguf_iq_grids.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufIQ2_XXS : GgufRows<GgufIQ2_XXS, 256, 66, 32>, OddSuperScaleParams<4, 1, kIqCenter> {
  static constexpr std::string_view kName = "gguf.iq2_xxs";
  static constexpr std::string_view kLayout = "gguf:IQ2_XXS";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq2_xxs";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 7;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int group = 0; group < 8; ++group) {
      const unsigned char* p = block + 2 + 8 * group;
      for (int e = 0; e < 4; ++e)
        signed_codes<8>(kIq2XxsGrid.point(p[e]), even_signs(read_bits(p + 4, 7u * e, 7)),
                        codes + 32 * group + 8 * e);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return one_piece(0, 8u * (2 + 8 * unit + 4) + 28, 4);
  }
};

static_assert(CodedFormat<GgufIQ2_XXS>);
static_assert(proves_block_params<GgufIQ2_XXS>());

}  // namespace packstone
