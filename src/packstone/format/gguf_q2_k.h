// GGUF Q2_K, 2.625 bits per weight. Producer: ggml (ggml-common.h block_q2_K, type id 10).
//
//   one block = 256 weights in 16 groups of 16 = 84 bytes
//   +----------------------+----------+----------+-------------+
//   | scales 0..15         | qs 16..79| d 80, 81 | dmin 82, 83 |
//   | byte g: low nibble   |          | binary16 | binary16    |
//   | scale, high minimum  |          |          |             |
//   +----------------------+----------+----------+-------------+
//   weight i: h = i / 128, s = (i % 128) / 32, l = i % 32: bits 2s, 2s + 1 of qs[32 h + l]
//
// Decode: w = fl((d * scale) * q - dmin * minimum): products exact (11 + 4 + 2 and 11 + 4 bits),
// one rounding at the difference. Legal: cols a multiple of 256. Unspecified by the producer:
// nothing; every pattern decodes.
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ2_K : GgufRows<GgufQ2_K, 256, 84, 16>, SuperScaleOffsetParams<4> {
  static constexpr std::string_view kName = "gguf.q2_k";
  static constexpr std::string_view kLayout = "gguf:Q2_K";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q2_K";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 2;

  static constexpr PieceList block_code(int i) {
    const int h = i / 128, s = (i % 128) / 32, l = i % 32;
    return one_piece(0, 8u * (16 + 32 * h + l) + 2 * s, 2);
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which < 2) return one_piece(0, 8u * (80 + 2 * which), 16);
    return one_piece(0, 8u * unit + 4 * (which - 2), 4);
  }
};

static_assert(CodedFormat<GgufQ2_K>);
static_assert(proves_bijection<GgufQ2_K, 84 * 8>({1, 256}, {}));

}  // namespace packstone
