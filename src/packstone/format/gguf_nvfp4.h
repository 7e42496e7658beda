// GGUF NVFP4, 4.5 bits per weight. Producer: ggml (ggml-common.h block_nvfp4, type id 40).
//
//   one block = 64 weights in 4 groups of 16 = 36 bytes
//   +------+----------------+---------------------------------------------+
//   | byte | 0..3           | 4..35                                       |
//   |      | scale of group | 8 bytes a group: byte j: weight j of the    |
//   |      | 0, 1, 2, 3     | group low nibble, weight j + 8 high nibble  |
//   +------+----------------+---------------------------------------------+
//   scale: UE4M3, the low 7 bits of E4M3; codes: E2M1
//
// Decode: w = ue4m3(scale) * e2m1(code); exact. Where ggml and the definitions of the parts differ
// this follows
//   ggml    for the scale byte: 0x7F is 0, bit 7 is ignored (so 0x80 is 0), but 0xFF is 480;
//           E4M3 has NaN at both 0x7F and 0xFF. The byte is ggml's own, so its reading is the value
//   E2M1    for code 8: -0 (ggml: +0), as in MXFP4
// A tensor may have a binary32 factor in a tensor of its own (`<name>.scale`): not part of the
// block. Legal: cols a multiple of 64. Not canonical: scale bytes from 0x7F on, but for 0xFF.
#pragma once

#include "packstone/format/e2m1.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

// The value of a scale byte of ggml's NVFP4; exact.
constexpr float ggml_ue4m3_to_float(std::uint32_t code) {
  if (code == 0x7F) return 0.0f;
  const std::uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
}

// The canonical scale byte whose value has the bits of `scale`; false when there is none.
constexpr bool float_to_ggml_ue4m3_exact(float scale, std::uint32_t& code) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(scale);
  code = 0;
  if (scale >= 0x1p-6f && scale <= 480.0f)
    code = (bits >> 20) - (120u << 3);
  else if (scale > 0.0f && scale < 0x1p-6f)
    code = static_cast<std::uint32_t>(scale * 512.0f);
  if (code == 0x7F) code = 0xFF;
  return std::bit_cast<std::uint32_t>(ggml_ue4m3_to_float(code)) == bits;
}

struct GgufNvfp4 : GgufRows<GgufNvfp4, 64, 36, 16> {
  static constexpr std::string_view kName = "gguf.nvfp4";
  static constexpr std::string_view kLayout = "gguf:NVFP4";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_nvfp4";
  using Scheme = E2M1Scheme;
  static constexpr int kCodeBits = 4;
  static constexpr std::array<ParamSpec, 1> kParams{{
      {ParamKind::kScale, ParamCoding::kE4M3, 8},
  }};

  static constexpr PieceList block_code(int i) {
    const int group = i / 16, l = i % 16;
    return one_piece(0, 8u * (4 + 8 * group + l % 8) + 4 * (l / 8), 4);
  }
  static constexpr PieceList block_param(int, int unit) { return one_piece(0, 8u * unit, 8); }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    return {ggml_ue4m3_to_float(raw.pattern[0]), kNoOffset, 0};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    return group.center == 0 && group.offset == 0.0f &&
           float_to_ggml_ue4m3_exact(group.scale, raw.pattern[0]);
  }
};

static_assert(CodedFormat<GgufNvfp4>);
static_assert(proves_bijection<GgufNvfp4, 2 * 2 * 36 * 8>({2, 128}, {}));

}  // namespace packstone
