// GGUF Q4_1, 5 bits per weight. Producer: ggml (ggml-common.h block_q4_1, type id 3).
//
//   one block = 32 weights = 20 bytes
//   +------+-----+-----+------------------------------------------+
//   | byte | 0 1 | 2 3 | 4 ................................... 19 |
//   |      |  d  |  m  | byte 4+j: low nibble w[j], high w[j+16]  |
//   +------+-----+-----+------------------------------------------+
//   d, m: binary16, little-endian, of either sign
//
// Decode: w = fl(d * q + m): the product is exact, one rounding at the sum. Legal: cols a multiple
// of 32. Unspecified by the producer: nothing; every pattern decodes (a non-finite d to inf or
// NaN).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ4_1 : GgufRows<GgufQ4_1, 32, 20, 32>, ScaleOffsetParams<ParamCoding::kF16> {
  static constexpr std::string_view kName = "gguf.q4_1";
  static constexpr std::string_view kLayout = "gguf:Q4_1";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q4_1";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 4;

  static constexpr PieceList block_code(int i) { return pieces(split_nibble(4, i)); }
  static constexpr PieceList block_param(int which, int) { return one_piece(0, 16u * which, 16); }
};

static_assert(CodedFormat<GgufQ4_1>);
static_assert(proves_bijection<GgufQ4_1, 2 * 2 * 20 * 8>({2, 64}, {}));

}  // namespace packstone
