// E2M1, the 4-bit float of MXFP4 and NVFP4: sign, 2 exponent bits, 1 mantissa bit, no infinities.
// Source: OCP Microscaling Formats (MX) v1.0, table 5. Device-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "packstone/format/scheme.h"

namespace packstone {

struct E2M1Scheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "e2m1";
  // Levels are halves: code 8 is -0.
  static constexpr float kUnit = 0.5f;
  static constexpr std::int32_t integer_level(std::uint32_t code) {
    constexpr std::int32_t kMagnitude[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return (code & 8u) != 0 ? -kMagnitude[code & 7u] : kMagnitude[code & 7u];
  }
  static constexpr float level(std::uint32_t code, std::int32_t) {
    const float magnitude = kUnit * static_cast<float>(integer_level(code & 7u));
    return (code & 8u) != 0 ? -magnitude : magnitude;
  }
};

// 2^(code - 127); code 255 is NaN. Exact, subnormal 2^-127 included.
// Source: OCP MX v1.0, E8M0.
constexpr float e8m0_to_float(std::uint32_t code) {
  if (code == 0) return 0x1p-127f;
  if (code == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(code << 23);
}

// The code whose value has the bits of `scale`; false when there is none (any NaN is code 255).
constexpr bool float_to_e8m0_exact(float scale, std::uint32_t& code) {
  if (scale != scale) {
    code = 255;
    return true;
  }
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(scale);
  code = bits == 0x00400000u ? 0 : bits >> 23;
  return code < 255 && std::bit_cast<std::uint32_t>(e8m0_to_float(code)) == bits;
}

}  // namespace packstone
