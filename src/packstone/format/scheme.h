// What the bits of a packed weight mean. Device-safe: C++20, no allocation, no exceptions.
//
// Every format of the house decodes a code q of a group by one formula,
//     value = fl(fl(scale * level(q)) + offset)          fl = round to nearest even in binary32
// where the group's scale and offset are binary32 numbers made from the stored parameters and
// level(q) is a small number that binary32 holds exactly:
//     linear schemes    level(q) = q - center, q >= 0    (GGUF, MLX affine, GPTQ, AWQ, ...)
//     table schemes     level(q) = a fixed table          (E2M1, NF4, IQ4_NL, FP8, ...)
//     float schemes     level(q) = the float pattern q    (float32, float16, bfloat16)
// A scheme without an offset has offset -0.0, the one number that changes no sum, sign of zero
// included. For every format in the list scale * level is exact in binary32, or the format's
// header says where it rounds.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string_view>

#include "packstone/base/small_float.h"

namespace packstone {

inline constexpr float kNoOffset = -0.0f;

// Decoded parameters of one group.
struct GroupValues {
  float scale = 1.0f;
  float offset = kNoOffset;
  std::int32_t center = 0;
  float inner = 1.0f;  // only for schemes with their own value(): a second factor of the group
};

// The families that the exact transcoder tells apart. Linear formats exchange codes by a proven map
// (transcode/scheme_map.h).
enum class SchemeKind { kFloat, kLinear, kTable };

// value = scale * (code - center) + offset.
struct LinearScheme {
  static constexpr SchemeKind kKind = SchemeKind::kLinear;
  static constexpr float level(std::uint32_t code, std::int32_t center) {
    return static_cast<float>(static_cast<std::int32_t>(code) - center);
  }
};

enum class FloatType : std::uint8_t { kF32, kF16, kBF16 };

constexpr int float_bits(FloatType type) {
  return type == FloatType::kF32 ? 32 : 16;
}

// The value of a pattern; exact.
constexpr float decode_float(FloatType type, std::uint32_t pattern) {
  switch (type) {
    case FloatType::kF32:
      return std::bit_cast<float>(pattern);
    case FloatType::kF16:
      return half_to_float(static_cast<std::uint16_t>(pattern));
    case FloatType::kBF16:
      return bfloat16_to_float(static_cast<std::uint16_t>(pattern));
  }
  return 0.0f;
}

// The nearest pattern of `type`, ties to even.
constexpr std::uint32_t encode_float(FloatType type, float value) {
  switch (type) {
    case FloatType::kF32:
      return std::bit_cast<std::uint32_t>(value);
    case FloatType::kF16:
      return float_to_half(value);
    case FloatType::kBF16:
      return float_to_bfloat16(value);
  }
  return 0;
}

// encode_float_exact by its definition.
constexpr bool encode_float_checked(FloatType type, float value, std::uint32_t& pattern) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  if (is_nan && type == FloatType::kF16)
    pattern = (bits >> 16 & 0x8000u) | 0x7C00u | (bits >> 13 & 0x3FFu);
  else if (is_nan && type == FloatType::kBF16)
    pattern = bits >> 16;
  else
    pattern = encode_float(type, value);
  return std::bit_cast<std::uint32_t>(decode_float(type, pattern)) == bits;
}

// The pattern of `type` whose value has the very bits of `value`, NaN payloads included; false when
// there is none.
[[gnu::always_inline]] constexpr bool encode_float_exact(FloatType type, float value,
                                                         std::uint32_t& pattern) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // Normal numbers of binary16 and all of binary32 need no rounding.
  if (type == FloatType::kF32) return pattern = bits, true;
  if (type == FloatType::kF16 && (bits & 0x1FFFu) == 0 && (bits >> 23 & 255u) - 113u < 30u) {
    pattern = (bits >> 16 & 0x8000u) | ((bits >> 13 & 0x3FFFFu) - (112u << 10));
    return true;
  }
  return encode_float_checked(type, value, pattern);
}

// The code is the pattern of an IEEE-style float; there are no parameters.
template <FloatType type>
struct FloatScheme {
  static constexpr SchemeKind kKind = SchemeKind::kFloat;
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return decode_float(type, code);
  }
};

// A table scheme gives
//   kTableName            equal names: equal tables and equal formulas, so that codes and group
//                         values move untouched
//   level(code, center)   exact in binary32
// and may give
//   kUnit, integer_level(code)   level = kUnit * integer_level, for every code
//   value(group, code)           the decode formula where it is another one
//   kReciprocalTable             the table whose formula has the same values with 1 / scale for the
//                                scale, wherever that is exact (FP8 scales that divide)
template <class Scheme>
concept HasOwnFormula = requires(GroupValues group, std::uint32_t code) {
  { Scheme::value(group, code) } -> std::same_as<float>;
};
template <class Scheme>
concept HasIntegerLevels = requires(std::uint32_t code) {
  { Scheme::integer_level(code) } -> std::convertible_to<std::int32_t>;
  { Scheme::kUnit } -> std::convertible_to<float>;
};

template <class Scheme>
concept HasReciprocal = requires {
  { Scheme::kReciprocalTable } -> std::convertible_to<std::string_view>;
};

// The one decode formula. Two roundings at most, never fused: built without FMA contraction.
template <class Scheme>
constexpr float decode_value(const GroupValues& group, std::uint32_t code) {
  if constexpr (HasOwnFormula<Scheme>) {
    return Scheme::value(group, code);
  } else if constexpr (Scheme::kKind == SchemeKind::kFloat) {
    return Scheme::level(code, 0);
  } else {
    const float product = group.scale * Scheme::level(code, group.center);
    return product + group.offset;
  }
}

}  // namespace packstone
