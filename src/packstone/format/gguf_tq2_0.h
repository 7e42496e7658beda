// GGUF TQ2_0, 2.0625 bits per weight. Producer: ggml (ggml-common.h block_tq2_0, type id 35).
//
//   one block = 256 weights = 66 bytes
//   +----------------+--------------+
//   | qs 0..63       | d 64, 65     |
//   +----------------+--------------+
//   weight i: h = i / 128, s = (i % 128) / 32, l = i % 32: bits 2 s, 2 s + 1 of qs[32 h + l]
//   d: binary16, last
//
// Decode: w = d * (q - 1). Exact in binary32. Legal: cols a multiple of 256. Unspecified by the
// producer: nothing; every pattern decodes (its quantizer never makes code 3).
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufTQ2_0 : GgufRows<GgufTQ2_0, 256, 66, 256>, ScaleParams<ParamCoding::kF16, 1> {
  static constexpr std::string_view kName = "gguf.tq2_0";
  static constexpr std::string_view kLayout = "gguf:TQ2_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_tq2_0";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 2;

  static constexpr PieceList block_code(int i) {
    const int h = i / 128, s = (i % 128) / 32, l = i % 32;
    return one_piece(0, 8u * (32 * h + l) + 2 * s, 2);
  }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 8u * 64, 16); }
};

static_assert(CodedFormat<GgufTQ2_0>);
static_assert(proves_bijection<GgufTQ2_0, 66 * 8>({1, 256}, {}));

}  // namespace packstone
