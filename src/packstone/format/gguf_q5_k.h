// GGUF Q5_K, 5.5 bits per weight. Producer: ggml (ggml-common.h block_q5_K, type id 13).
//
//   one block = 256 weights in 8 groups of 32 = 176 bytes
//   +----------+------------+-----------------+-----------+------------+
//   | d 0, 1   | dmin 2, 3  | scales 4..15    | qh 16..47 | qs 48..175 |
//   | binary16 | binary16   | gguf_k_scales.h |           |            |
//   +----------+------------+-----------------+-----------+------------+
//   weight i: j = i / 32, l = i % 32
//     low 4 bits: nibble j % 2 (0 = low) of qs[32 (j / 2) + l];  high bit: bit j of qh[l]
//
// Decode: w = fl((d * scale) * q - dmin * minimum): products exact (11 + 6 + 5 and 11 + 6 bits),
// one rounding at the difference. Legal: cols a multiple of 256. Unspecified by the producer:
// nothing; every pattern decodes.
#pragma once

#include "packstone/format/gguf_k_scales.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ5_K : GgufRows<GgufQ5_K, 256, 176, 32>, KScaleParams {
  static constexpr std::string_view kName = "gguf.q5_k";
  static constexpr std::string_view kLayout = "gguf:Q5_K";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q5_K";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 5;

  static constexpr PieceList block_code(int i) {
    const int j = i / 32, l = i % 32;
    return pieces(Piece{8u * (48 + 32 * (j / 2) + l) + 4 * (j % 2), 0, 4},
                  Piece{8u * (16 + l) + j, 0, 1});
  }
};

static_assert(CodedFormat<GgufQ5_K>);
static_assert(proves_bijection<GgufQ5_K, 176 * 8>({1, 256}, {}));

}  // namespace packstone
