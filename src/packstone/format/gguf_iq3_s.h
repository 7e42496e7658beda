// GGUF IQ3_S, 3.4375 bits per weight. Producer: ggml (ggml-common.h block_iq3_s, type id 21).
//
//   one block = 256 weights in 8 groups of 32 = 110 bytes
//   +--------+----------+-----------+---------------+-----------------+
//   | d 0, 1 | qs 2..65 | qh 66..73 | signs 74..105 | scales 106..109 |
//   +--------+----------+-----------+---------------+-----------------+
//   weight i: e = i / 4: vector of kIq3SGrid with low 8 index bits qs[e], high bit e % 8 of
//   qh[e / 8]; coordinate i % 4, sign bit i % 8 of signs[i / 8]
//   scale of group g: nibble g % 2 (0 = low) of scales[g / 2]
//
// Decode: w = (d * (2 scale + 1)) * level. Exact in binary32: 11 + 5 + 4 bits.
// Legal: cols a multiple of 256. Unspecified by the producer: nothing; every pattern decodes. Read
// and run only: no block is written.
#pragma once

#include "packstone/format/gguf_iq_grids.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufIQ3_S : GgufRows<GgufIQ3_S, 256, 110, 32>, OddSuperScaleParams<4, 8, kIqCenter> {
  static constexpr std::string_view kName = "gguf.iq3_s";
  static constexpr std::string_view kLayout = "gguf:IQ3_S";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq3_s";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 7;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (int e = 0; e < 64; ++e) {
      const unsigned high = block[66 + e / 8] >> (e % 8) & 1u;
      signed_codes<4>(kIq3SGrid.point(block[2 + e] | high << 8),
                      static_cast<unsigned>(block[74 + e / 2]) >> (4 * (e % 2)), codes + 4 * e);
    }
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 0, 16);
    return one_piece(0, 8u * 106 + 4 * static_cast<std::uint64_t>(unit), 4);
  }
};

static_assert(CodedFormat<GgufIQ3_S>);
static_assert(proves_block_params<GgufIQ3_S>());

}  // namespace packstone
