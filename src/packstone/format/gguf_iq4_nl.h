// GGUF IQ4_NL, 4.5 bits per weight. Producer: ggml (ggml-common.h block_iq4_nl, type id 20).
//
//   one block = 32 weights = 18 bytes: d binary16, then the nibbles as in Q4_0
//   +------+-----+------------------------------------------+
//   | byte | 0 1 | 2 ................................... 17 |
//   |      |  d  | byte 2+j: low nibble w[j], high w[j+16]  |
//   +------+-----+------------------------------------------+
//
// Decode: w = d * level(q), 16 whole levels (gguf_iq4_levels.h). Exact in binary32: 11 + 7 bits.
// Legal: cols a multiple of 32. Unspecified by the producer: nothing; every pattern decodes.
#pragma once

#include "packstone/format/gguf_iq4_levels.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufIQ4_NL : GgufRows<GgufIQ4_NL, 32, 18, 32>, ScaleParams<ParamCoding::kF16> {
  static constexpr std::string_view kName = "gguf.iq4_nl";
  static constexpr std::string_view kLayout = "gguf:IQ4_NL";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_iq4_nl";
  using Scheme = Iq4Scheme;
  static constexpr int kCodeBits = 4;

  static constexpr PieceList block_code(int i) { return pieces(split_nibble(2, i)); }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 16); }
};

static_assert(CodedFormat<GgufIQ4_NL>);
static_assert(proves_bijection<GgufIQ4_NL, 2 * 2 * 18 * 8>({2, 64}, {}));

}  // namespace packstone
