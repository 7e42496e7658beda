// GGUF Q5_0, 5.5 bits per weight. Producer: ggml (ggml-common.h block_q5_0, type id 6).
//
//   one block = 32 weights = 22 bytes
//   +------+-----+-----------------+------------------------------------------------+
//   | byte | 0 1 | 2 ........... 5 | 6 ......................................... 21 |
//   |      |  d  | bit i: bit 4 of | byte 6+j: low nibble: bits 0..3 of w[j], high  |
//   |      |     | w[i]            | nibble: of w[j+16]                             |
//   +------+-----+-----------------+------------------------------------------------+
//   d: binary16, little-endian, of either sign
//
// Decode: w = d * (q - 16). Exact in binary32: 11 + 5 bits. Legal: cols a multiple of 32.
// Unspecified by the producer: nothing; every pattern decodes (a non-finite d to inf or NaN).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ5_0 : GgufRows<GgufQ5_0, 32, 22, 32>, ScaleParams<ParamCoding::kF16, 16> {
  static constexpr std::string_view kName = "gguf.q5_0";
  static constexpr std::string_view kLayout = "gguf:Q5_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q5_0";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 5;

  static constexpr PieceList block_code(int i) {
    return pieces(split_nibble(6, i), Piece{8u * 2 + i, 0, 1});
  }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 16); }
};

static_assert(CodedFormat<GgufQ5_0>);
static_assert(proves_bijection<GgufQ5_0, 2 * 2 * 22 * 8>({2, 64}, {}));

}  // namespace packstone
