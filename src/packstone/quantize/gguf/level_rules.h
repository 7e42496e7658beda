// The code nearest to a value, of the two tables of levels that GGUF types have.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "packstone/format/e2m1.h"
#include "packstone/format/gguf_iq4_levels.h"

namespace packstone::gguf {

// Codes of IQ4 levels by floor(2 t): all halfway points between levels are whole or half numbers.
inline constexpr auto kIq4Codes = [] {
  std::array<std::uint8_t, 512> codes{};
  for (int twice = -256; twice < 256; ++twice) {
    std::uint8_t code = 0;
    for (std::uint32_t k = 0; k < 15; ++k)
      code += twice >= Iq4Scheme::integer_level(k) + Iq4Scheme::integer_level(k + 1);
    codes[static_cast<std::size_t>(twice + 256)] = code;
  }
  return codes;
}();

// iq4_code(t): the code of the level nearest to t, the higher of two. NaN: 0.
// Exact: ggml's best_index_int8, NaN aside.
inline std::uint8_t iq4_code(float t) {
  const float bounded = t > -128.0f ? (t < 127.0f ? t : 127.0f) : -128.0f;
  const float twice = 2.0f * bounded;
  int whole = static_cast<int>(twice);
  whole -= twice < static_cast<float>(whole);
  return kIq4Codes[static_cast<std::size_t>(whole + 256)];
}

// e2m1_codes(x, scale, codes): each code is that of the value scale * level nearest to x, the
// smaller magnitude of two; never -0. Scale 0: all codes 0.
// Exact: ggml's best_index_mxfp4; its halfway points are exact in binary32 for the scales of MXFP4
// and NVFP4.
inline void e2m1_codes(std::span<const float> x, float scale, std::span<std::uint8_t> codes) {
  float halfway[7];
  for (std::uint32_t k = 0; k < 7; ++k)
    halfway[k] = scale * 0.5f * (E2M1Scheme::level(k, 0) + E2M1Scheme::level(k + 1, 0));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float magnitude = std::abs(x[i]);
    int code = 0;
    for (const float bound : halfway) code += magnitude > bound;
    if (!(scale > 0)) code = 0;
    codes[i] = static_cast<std::uint8_t>(code | (x[i] < 0 && code > 0 ? 8 : 0));
  }
}

}  // namespace packstone::gguf
