// GGUF Q8_0, 8.5 bits per weight. Producer: ggml (ggml-common.h block_q8_0, type id 8).
//
//   one block = 32 weights = 34 bytes
//   +------+-----+----------------------------------+
//   | byte | 0 1 | 2 ........................... 33 |
//   |      |  d  | byte 2+i: w[i], two's complement |
//   +------+-----+----------------------------------+
//   d: binary16, little-endian, of either sign
//
// Decode: w = d * (q - 128), q the stored byte ^ 0x80. Exact in binary32: 11 + 8 bits. Legal: cols
// a multiple of 32. Unspecified by the producer: nothing; every pattern decodes (a non-finite d to
// inf or NaN).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ8_0 : GgufRows<GgufQ8_0, 32, 34, 32>, ScaleParams<ParamCoding::kF16, 128> {
  static constexpr std::string_view kName = "gguf.q8_0";
  static constexpr std::string_view kLayout = "gguf:Q8_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q8_0";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 8;
  static constexpr std::uint32_t kCodeXor = 0x80;  // signed bytes

  static constexpr PieceList block_code(int i) { return one_piece(0, 8u * (2 + i), 8); }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 16); }
};

static_assert(CodedFormat<GgufQ8_0>);
static_assert(proves_bijection<GgufQ8_0, 2 * 2 * 34 * 8>({2, 64}, {}));

}  // namespace packstone
