// GGUF MXFP4, 4.25 bits per weight. Producer: ggml (ggml-common.h block_mxfp4, type id 39).
//
//   one block = 32 weights = 17 bytes
//   +------+-------+------------------------------------------------+
//   | byte |   0   | 1 ........................................ 16  |
//   |      | scale | byte 1+j: w[j] low nibble, w[j+16] high nibble |
//   +------+-------+------------------------------------------------+
//   scale: E8M0; codes: E2M1
//
// Decode: w = 2^(scale - 127) * e2m1(code); exact, but for what passes binary32 (infinite). Where
// OCP MX and ggml differ this follows OCP MX: code 8 is -0 (ggml: +0), and scale byte 255 makes
// NaN (ggml: 2^128 times the level). Legal: cols a multiple of 32.
#pragma once

#include "packstone/format/e2m1.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufMxfp4 : GgufRows<GgufMxfp4, 32, 17, 32>, ScaleParams<ParamCoding::kE8M0> {
  static constexpr std::string_view kName = "gguf.mxfp4";
  static constexpr std::string_view kLayout = "gguf:MXFP4";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_mxfp4";
  using Scheme = E2M1Scheme;
  static constexpr int kCodeBits = 4;

  static constexpr PieceList block_code(int i) { return {{split_nibble(1, i)}, 1}; }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 8); }
};

static_assert(CodedFormat<GgufMxfp4>);
static_assert(proves_bijection<GgufMxfp4, 2 * 2 * 17 * 8>({2, 64}, {}));

}  // namespace packstone
