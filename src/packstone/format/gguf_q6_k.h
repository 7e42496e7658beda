// GGUF Q6_K, 6.5625 bits per weight. Producer: ggml (ggml-common.h block_q6_K, type id 14).
//
//   one block = 256 weights = 210 bytes
//   +-----------+------------+----------------+----------+
//   | ql 0..127 | qh 128..191| scales 192..207| d 208,209|
//   +-----------+------------+----------------+----------+
//   weight i: h = i / 128, s = (i % 128) / 32, l = i % 32
//     low 4 bits: nibble s / 2 of ql[64 h + 32 (s % 2) + l];  high 2 bits: bits 2s of qh[32 h + l]
//   scales: 16 signed bytes, one per 16 weights; d: binary16, last
//
// Decode: w = (d * scale) * (q - 32). Exact in binary32: 11 + 7 + 5 = 23 bits.
// Legal: cols a multiple of 256. Scales may be negative; a block of zero bytes decodes to -0.0.
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufQ6_K : GgufRows<256, 210> {
  static constexpr std::string_view kName = "gguf.q6_k";
  static constexpr std::string_view kLayout = "gguf:Q6_K";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q6_K";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 6;
  static constexpr std::array<ParamSpec, 2> kParams{{
      {ParamKind::kSuperScale, ParamCoding::kF16, 16},
      {ParamKind::kScale, ParamCoding::kSigned, 8},
  }};

  static constexpr std::int64_t group_cols(const FormatParams&) { return 16; }
  static constexpr std::int64_t param_cols(int which, const FormatParams&) {
    return which == 0 ? 256 : 16;
  }
  static constexpr PieceList code(Shape shape, const FormatParams&, std::int64_t row, std::int64_t col) {
    const std::uint64_t block = block_bit(shape, row, col);
    const int i = static_cast<int>(col % 256);
    const int h = i / 128, s = (i % 128) / 32, l = i % 32;
    return two_pieces(0, block + 8 * (64 * h + 32 * (s % 2) + l) + 4 * (s / 2), 4,
                      block + 8 * (128 + 32 * h + l) + 2 * s, 2);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int which, std::int64_t row,
                                   std::int64_t unit) {
    if (which == 0) return one_piece(0, block_bit(shape, row, unit * 256) + 8 * 208, 16);
    return one_piece(0, block_bit(shape, row, unit * 16) + 8 * (192 + unit % 16), 8);
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const float d = half_to_float(static_cast<std::uint16_t>(raw.pattern[0]));
    const float scale = static_cast<float>(static_cast<std::int8_t>(raw.pattern[1]));
    return {d * scale, kNoOffset, 32};
  }
};

static_assert(CodedFormat<GgufQ6_K>);
static_assert(proves_bijection<GgufQ6_K, 210 * 8>({1, 256}, {}));

}  // namespace packstone
