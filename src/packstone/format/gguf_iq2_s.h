// GGUF IQ2_S, 2.5625 bits per weight. Producer: ggml (ggml-common.h block_iq2_s, type id 22).
//
//   one block = 256 weights in 16 groups of 16 = 82 bytes
//   +--------+------------+--------------+-----------+---------------+
//   | d 0, 1 | qs 2..33   | signs 34..65 | qh 66..73 | scales 74..81 |
//   +--------+------------+--------------+-----------+---------------+
//   weight i: e = i / 8: vector of kIq2SGrid with low 8 index bits qs[e], high 2 bits 2 (e % 4) of
//   qh[e / 4]; coordinate i % 8, sign bit i % 8 of signs[e]
//   scale of group g: nibble g % 2 (0 = low) of scales[g / 2]
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

struct GgufIQ2_S : GgufRows<GgufIQ2_S, 256, 82, 16>, OddSuperScaleParams<4, 1, kIqCenter> {
  static constexpr std::string_view kName = "gguf.iq2_s";
  static constexpr std::string_view kLayout = "gguf:IQ2_S";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq2_s";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 7;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int e = 0; e < 32; ++e) {
      const unsigned high = block[66 + e / 4] >> (2 * (e % 4)) & 3u;
      signed_codes<8>(kIq2SGrid.point(block[2 + e] | high << 8), block[34 + e], codes + 8 * e);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return one_piece(0, 8u * 74 + 4 * static_cast<std::uint64_t>(unit), 4);
  }
};

static_assert(CodedFormat<GgufIQ2_S>);
static_assert(proves_block_params<GgufIQ2_S>());

}  // namespace packstone
