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

struct GgufQ6_K : GgufRows<GgufQ6_K, 256, 210, 16>, SharedParams {
  static constexpr std::string_view kName = "gguf.q6_k";
  static constexpr std::string_view kLayout = "gguf:Q6_K";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_q6_K";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 6;
  static constexpr std::array<ParamSpec, 2> kParams{{
      {ParamKind::kSuperScale, ParamCoding::kF16, 16},
      {ParamKind::kScale, ParamCoding::kSigned, 8},
  }};

  static constexpr PieceList block_code(int i) {
    const int h = i / 128, s = (i % 128) / 32, l = i % 32;
    return pieces(Piece{8u * (64 * h + 32 * (s % 2) + l) + 4 * (s / 2), 0, 4},
                  Piece{8u * (128 + 32 * h + l) + 2 * s, 0, 2});
  }
  static constexpr PieceList block_param(int which, int unit) {
    if (which == 0) return one_piece(0, 8u * 208, 16);
    return one_piece(0, 8u * (192 + unit), 8);
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const float d = decode_float(FloatType::kF16, raw.pattern[0]);
    const float scale = static_cast<float>(static_cast<std::int8_t>(raw.pattern[1]));
    return {d * scale, kNoOffset, 32};
  }
};

static_assert(CodedFormat<GgufQ6_K>);
static_assert(proves_bijection<GgufQ6_K, 210 * 8>({1, 256}, {}));

}  // namespace packstone
