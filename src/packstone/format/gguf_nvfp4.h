// GGUF NVFP4, 4.5 bits per weight. Producer: ggml (ggml-common.h block_nvfp4, type id 40).
//
//   one block = 64 weights = 36 bytes, four sub-blocks of 16
//   +------+------------+---------------------------------------------------------------+
//   | byte |  0 ..... 3 | 4 ....................................................... 35  |
//   |      | scale of s | 4 + 8 s + j: w[16 s + j] low nibble, w[16 s + j + 8] high      |
//   +------+------------+---------------------------------------------------------------+
//   codes: E2M1; scales: e4m3 without sign
//
// Decode: w = fl(scale * e2m1(code)), exact in binary32. The scale is what ggml reads: bit 7 is
// ignored, 0x7F is 0, and 0xFF is 480 (OCP: both NaN). Code 8 is -0 as in gguf_mxfp4.h (ggml: +0).
// Legal: cols a multiple of 64.
#pragma once

#include "packstone/format/e2m1.h"
#include "packstone/format/fp8_kinds.h"
#include "packstone/format/gguf_rows.h"

namespace packstone {

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
    const int s = i / 16, r = i % 16;
    return one_piece(0, static_cast<std::uint64_t>(8 * (4 + 8 * s + r % 8) + 4 * (r / 8)), 4);
  }
  static constexpr PieceList block_param(int, int unit) {
    return one_piece(0, 8u * static_cast<std::uint64_t>(unit), 8);
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const std::uint32_t byte = raw.pattern[0] & 255u;
    float scale = 0.0f;
    if (byte == 0xFFu)
      scale = 480.0f;
    else if (byte != 0x7Fu)
      scale = fp8_to_float(Fp8Kind::kE4M3FN, byte & 0x7Fu);
    return {scale, kNoOffset, 0};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    if (group.center != 0 || group.offset != 0.0f) return false;
    raw.pattern[0] = 0xFFu;
    if (group.scale == 480.0f) return true;
    return float_to_e4m3fn_exact(group.scale, raw.pattern[0]) && raw.pattern[0] < 0x7Fu;
  }
};

static_assert(CodedFormat<GgufNvfp4>);
static_assert(proves_bijection<GgufNvfp4, 2 * 36 * 8>({2, 64}, {}));

}  // namespace packstone
