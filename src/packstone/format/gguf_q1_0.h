// GGUF Q1_0, one sign bit per weight, 1.125 bits. Producer: ggml (ggml-common.h block_q1_0, type id
// 41); GPTQModel names the same block Q1_0_g128.
//
//   one block = 128 weights = 18 bytes
//   +---------------+--------------------+
//   | d: binary16   | qs: 16 bytes       |
//   | bytes 0, 1    | bytes 2..17        |
//   +---------------+--------------------+
//   weight i: bit i % 8 of qs[i / 8]; 1 is +d, 0 is -d
//
// Decode: w = d * level, level 1 or -1; exact, the sign of zero included. A linear scheme cannot
// say it: its step 2 d has no whole center. Legal: cols a multiple of the block. Unspecified by the
// producer: nothing; every pattern decodes.
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

// The two levels -1 and +1.
struct SignScheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "sign";
  static constexpr float kUnit = 1.0f;
  static constexpr std::int32_t integer_level(std::uint32_t code) { return code != 0 ? 1 : -1; }
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return static_cast<float>(integer_level(code));
  }
};

template <class Format, int BlockCols>
struct SignBlock : GgufRows<Format, BlockCols, 2 + BlockCols / 8, BlockCols>,
                   ScaleParams<ParamCoding::kF16> {
  using Scheme = SignScheme;
  static constexpr int kCodeBits = 1;
  static constexpr PieceList block_code(int i) {
    return one_piece(0, 16u + static_cast<std::uint64_t>(i), 1);
  }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 0, 16); }
};

struct GgufQ1_0 : SignBlock<GgufQ1_0, 128> {
  static constexpr std::string_view kName = "gguf.q1_0";
  static constexpr std::string_view kLayout = "gguf:Q1_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q1_0";
};

static_assert(CodedFormat<GgufQ1_0>);
static_assert(proves_bijection<GgufQ1_0, 36 * 8>({1, 256}, {}));

}  // namespace packstone
