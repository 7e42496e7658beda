// GGUF IQ2_XS, 2.3125 bits per weight. Producer: ggml (ggml-common.h block_iq2_xs, type id 17).
//
//   one block = 256 weights in 16 groups of 16 = 74 bytes
//   +--------+------------------------+----------------+
//   | d 0, 1 | qs 2..65: 32 x 16 bits | scales 66..73  |
//   +--------+------------------------+----------------+
//   weight i: 16-bit word i / 8: low 9 bits an index of kIq2XsGrid, high 7 the signs (even_signs);
//   coordinate and sign bit i % 8. Scale of group g: nibble g % 2 (0 = low) of scales[g / 2]
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

struct GgufIQ2_XS : GgufRows<GgufIQ2_XS, 256, 74, 16>, OddSuperScaleParams<4, 1, kIqCenter> {
  static constexpr std::string_view kName = "gguf.iq2_xs";
  static constexpr std::string_view kLayout = "gguf:IQ2_XS";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq2_xs";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 7;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int e = 0; e < 32; ++e) {
      const unsigned word = block_u16(block + 2 + 2 * e);
      signed_codes<8>(kIq2XsGrid.point(word & 511u), even_signs(word >> 9), codes + 8 * e);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return one_piece(0, 8u * 66 + 4 * static_cast<std::uint64_t>(unit), 4);
  }
};

static_assert(CodedFormat<GgufIQ2_XS>);
static_assert(proves_block_params<GgufIQ2_XS>());

}  // namespace packstone
