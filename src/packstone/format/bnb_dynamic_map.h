// The signed dynamic map of bitsandbytes: the 256 numbers that coded block maxima stand for.
// Source: bitsandbytes 0.50, functional.py create_dynamic_map(signed=True).
//
// For i = 0..6: 2^i + 1 equally spaced points from 0.1 to 1.0 in binary32, the 2^i midpoints of
// neighbours, times 10^(i - 6), both signs; with 0 and 1, ascending. A point is one fused
// multiply-add from the nearer end, the rounding of torch.linspace.
#pragma once

#include <array>
#include <cstdint>

namespace packstone {

// The map, ascending. CRC-32 of its little-endian bytes: 1B137AEB.
constexpr std::array<float, 256> make_bnb_dynamic_map() {
  constexpr float kPowers[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  std::array<float, 256> map{};
  std::size_t at = 128;
  for (int i = 0; i < 7; ++i) {
    const int count = 1 << i;
    const float step = (1.0f - 0.1f) / static_cast<float>(count);
    // A step has 24 bits and a point 7: the double is exact, the conversion is the one rounding.
    auto point = [&](int p) {
      const double exact = p < (count + 1) / 2
                               ? static_cast<double>(step) * p + static_cast<double>(0.1f)
                               : 1.0 - static_cast<double>(step) * (count - p);
      return static_cast<float>(exact);
    };
    for (int p = 0; p < count; ++p) map[at++] = (point(p) + point(p + 1)) / 2.0f * kPowers[i];
  }
  map[127] = 0.0f;
  map[255] = 1.0f;
  for (std::size_t i = 0; i < 127; ++i) map[i] = -map[254 - i];
  return map;
}

inline constexpr std::array<float, 256> kBnbDynamicMap = make_bnb_dynamic_map();

}  // namespace packstone
