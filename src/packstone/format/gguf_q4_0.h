// GGUF Q4_0, 4.5 bits per weight. Producer: ggml (ggml-common.h block_q4_0, type id 2).
//
//   one block = 32 weights = 18 bytes
//   +------+-----+------------------------------------------+
//   | byte | 0 1 | 2 ................................... 17 |
//   |      |  d  | byte 2+j: low nibble w[j], high w[j+16]  |
//   +------+-----+------------------------------------------+
//   d: binary16, little-endian, of either sign
//
// Decode: w = d * (q - 8). Exact in binary32: 11 + 4 bits. Legal: cols a multiple of 32.
// Unspecified by the producer: nothing; every pattern decodes (a non-finite d to inf or NaN).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ4_0 : GgufRows<GgufQ4_0, 32, 18, 32>, ScaleParams<ParamCoding::kF16, 8> {
  static constexpr std::string_view kName = "gguf.q4_0";
  static constexpr std::string_view kLayout = "gguf:Q4_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q4_0";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 4;

  static constexpr PieceList block_code(int i) { return pieces(split_nibble(2, i)); }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 16); }
};

static_assert(CodedFormat<GgufQ4_0>);
static_assert(proves_bijection<GgufQ4_0, 2 * 2 * 18 * 8>({2, 64}, {}));

}  // namespace packstone
