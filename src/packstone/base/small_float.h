// Conversions between binary32 and the 16-bit float types, bit by bit, all values.
// Device-safe: C++20, no allocation, no exceptions. Rounding: to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace packstone {

// The value of an IEEE binary16 pattern. Exact: every binary16 value is a binary32 value; a NaN
// keeps its payload in the upper mantissa bits and becomes quiet only if it already was.
constexpr float special_half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t mantissa = half & 1023u;
  if (((half >> 10) & 31u) == 31)
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(mantissa) - 21;
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(113 - shift) << 23) |
                              (((mantissa << shift) & 1023u) << 13));
}
constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t exponent = (half >> 10) & 31u;
  if (exponent == 0 || exponent == 31) return special_half_to_float(half);
  return std::bit_cast<float>(static_cast<std::uint32_t>(half & 0x8000u) << 16 |
                              ((half & 0x7FFFu) + (112u << 10)) << 13);
}

// The binary16 pattern nearest to value; overflow gives infinity, NaN stays NaN (made quiet).
constexpr std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u)
    return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x33000001u) return sign;  // at most half of the smallest subnormal
  int shift = 13;
  std::uint32_t mantissa = magnitude & 0x7FFFFFu;
  std::uint32_t base = 0;
  if (magnitude < 0x38800000u) {  // subnormal result: the hidden bit becomes explicit
    mantissa |= 0x800000u;
    shift = 126 - static_cast<int>(magnitude >> 23);
  } else {
    base = ((magnitude >> 23) - 112u) << 10;
  }
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
  const std::uint32_t halfway = 1u << (shift - 1);
  std::uint32_t result = base + (mantissa >> shift);
  if (rest > halfway || (rest == halfway && (result & 1u))) ++result;
  return static_cast<std::uint16_t>(sign | result);
}

// The value of a bfloat16 pattern. Exact.
constexpr float bfloat16_to_float(std::uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat) << 16);
}

// The bfloat16 pattern nearest to value; overflow gives infinity, NaN stays NaN (made quiet).
constexpr std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace packstone
