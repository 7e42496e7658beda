// GGUF Q5_1, 6 bits per weight. Producer: ggml (ggml-common.h block_q5_1, type id 7).
//
//   one block = 32 weights = 24 bytes
//   +------+-----+-----+-----------------+-----------------------------------------------+
//   | byte | 0 1 | 2 3 | 4 ........... 7 | 8 ........................................ 23 |
//   |      |  d  |  m  | bit i: bit 4 of | byte 8+j: low nibble: bits 0..3 of w[j], high |
//   |      |     |     | w[i]            | nibble: of w[j+16]                            |
//   +------+-----+-----+-----------------+-----------------------------------------------+
//   d, m: binary16, little-endian, of either sign
//
// Decode: w = fl(d * q + m): the product is exact, one rounding at the sum. Legal: cols a multiple
// of 32. Unspecified by the producer: nothing; every pattern decodes (a non-finite d to inf or
// NaN).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ5_1 : GgufRows<GgufQ5_1, 32, 24, 32>, ScaleOffsetParams<ParamCoding::kF16> {
  static constexpr std::string_view kName = "gguf.q5_1";
  static constexpr std::string_view kLayout = "gguf:Q5_1";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q5_1";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 5;

  static constexpr PieceList block_code(int i) {
    return pieces(split_nibble(8, i), Piece{8u * 4 + i, 0, 1});
  }
  static constexpr PieceList block_param(int which, int) { return one_piece(0, 16u * which, 16); }
};

static_assert(CodedFormat<GgufQ5_1>);
static_assert(proves_bijection<GgufQ5_1, 2 * 2 * 24 * 8>({2, 64}, {}));

}  // namespace packstone
