// GGUF IQ3_XXS, 3.0625 bits per weight. Producer: ggml (ggml-common.h block_iq3_xxs, type id 18).
//
//   one block = 256 weights in 8 groups of 32 = 98 bytes
//   +--------+--------------------+-----------------------------------------+
//   | d 0, 1 | qs 2..65           | 66..97: 32 bits a group, little-endian: |
//   |        | 64 indices         | 4 x 7 sign bits, then 4 bits of scale   |
//   +--------+--------------------+-----------------------------------------+
//   weight i: coordinate i % 4 of the vector qs[i / 4] of kIq3XxsGrid, sign bit i % 8 of
//   even_signs(field (i % 32) / 8)
//
// Decode: w = (d * (2 scale + 1) / 4) * level. Exact in binary32: 11 + 5 + 6 bits, and no exponent
// leaves the range (d is at least 2^-24). ggml's (d * (0.5 + scale) * 0.5) * grid * sign is the
// same number, by exact steps.
// Legal: cols a multiple of 256. Unspecified by the producer: nothing; every pattern decodes. Read
// and run only: no block is written.
#pragma once

#include "packstone/format/gguf_iq_grids.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufIQ3_XXS : GgufRows<GgufIQ3_XXS, 256, 98, 32>, OddSuperScaleParams<4, 2, kIqCenter> {
  static constexpr std::string_view kName = "gguf.iq3_xxs";
  static constexpr std::string_view kLayout = "gguf:IQ3_XXS";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq3_xxs";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 7;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int e = 0; e < 32; ++e) {
      const unsigned char* fields = block + 66 + 4 * (e / 4);
      const unsigned signs = even_signs(read_bits(fields, 7u * (e % 4), 7));
      signed_codes<4>(kIq3XxsGrid.point(block[2 + 2 * e]), signs, codes + 8 * e);
      signed_codes<4>(kIq3XxsGrid.point(block[3 + 2 * e]), signs >> 4, codes + 8 * e + 4);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return one_piece(0, 8u * (66 + 4 * unit) + 28, 4);
  }
};

static_assert(CodedFormat<GgufIQ3_XXS>);
static_assert(proves_block_params<GgufIQ3_XXS>());

}  // namespace packstone
