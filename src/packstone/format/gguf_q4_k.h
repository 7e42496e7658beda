// GGUF Q4_K, 4.5 bits per weight. Producer: ggml (ggml-common.h block_q4_K, type id 12).
//
//   one block = 256 weights in 8 groups of 32 = 144 bytes
//   +----------+------------+-----------------+------------+
//   | d 0, 1   | dmin 2, 3  | scales 4..15    | qs 16..143 |
//   | binary16 | binary16   | gguf_k_scales.h |            |
//   +----------+------------+-----------------+------------+
//   weight i: j = i / 32, l = i % 32: nibble j % 2 (0 = low) of qs[32 (j / 2) + l]
//
// Decode: w = fl((d * scale) * q - dmin * minimum): products exact (11 + 6 + 4 and 11 + 6 bits),
// one rounding at the difference. Legal: cols a multiple of 256. Unspecified by the producer:
// nothing; every pattern decodes.
#pragma once

#include "packstone/format/gguf_k_scales.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ4_K : GgufRows<GgufQ4_K, 256, 144, 32>, KScaleParams {
  static constexpr std::string_view kName = "gguf.q4_k";
  static constexpr std::string_view kLayout = "gguf:Q4_K";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q4_K";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 4;

  static constexpr PieceList block_code(int i) {
    const int j = i / 32, l = i % 32;
    return one_piece(0, 8u * (16 + 32 * (j / 2) + l) + 4 * (j % 2), 4);
  }
};

static_assert(CodedFormat<GgufQ4_K>);
static_assert(proves_bijection<GgufQ4_K, 144 * 8>({1, 256}, {}));

}  // namespace packstone
