// GGUF Q2_0, 2.25 bits per weight. Producer: ggml (ggml-common.h block_q2_0, type id 42).
//
//   one block = 64 weights = 18 bytes
//   +---------------+--------------------+
//   | d: binary16   | qs: 16 bytes       |
//   | bytes 0, 1    | bytes 2..17        |
//   +---------------+--------------------+
//   weight i: bits 2 (i % 4), 2 (i % 4) + 1 of qs[i / 4]
//
// Decode: w = d * (q - 1): -d, 0, d, 2 d. Exact in binary32. Legal: cols a multiple of 64.
// Unspecified by the producer: nothing; every pattern decodes (its quantizer never makes code 3).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ2_0 : GgufRows<GgufQ2_0, 64, 18, 64>, ScaleParams<ParamCoding::kF16, 1> {
  static constexpr std::string_view kName = "gguf.q2_0";
  static constexpr std::string_view kLayout = "gguf:Q2_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q2_0";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 2;

  static constexpr PieceList block_code(int i) {
    return one_piece(0, 16 + 2 * static_cast<std::uint64_t>(i), 2);
  }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 16); }
};

static_assert(CodedFormat<GgufQ2_0>);
static_assert(proves_bijection<GgufQ2_0, 2 * 2 * 18 * 8>({2, 128}, {}));

}  // namespace packstone
