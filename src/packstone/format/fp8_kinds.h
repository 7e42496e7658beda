// The 8-bit float kinds: FP8 weights, MXFP8 weights, scales of NVFP4.
// Source: OCP 8-bit Floating Point v1.0 (e4m3fn, e5m2); Micikevicius et al. and the "fnuz" kinds of
// ONNX float8 (e4m3fnuz, e5m2fnuz: one NaN, no infinity, no -0). Device-safe.
//
//   kind       exponent, mantissa, bias   largest   special codes
//   e4m3fn     4, 3, 7                    448       NaN 0x7F 0xFF
//   e5m2       5, 2, 15                   57344     infinite 0x7C 0xFC, NaN 0x7D..7F 0xFD..FF
//   e4m3fnuz   4, 3, 8                    240       NaN 0x80
//   e5m2fnuz   5, 2, 16                   57344     NaN 0x80
//
// value = (-1)^s 2^(E - bias) (1 + M / 2^m), for E = 0 (-1)^s 2^(1 - bias) M / 2^m.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "packstone/format/scheme.h"

namespace packstone {

enum class Fp8Kind : std::uint8_t { kE4M3FN, kE5M2, kE4M3FNUZ, kE5M2FNUZ };

constexpr int fp8_mantissa_bits(Fp8Kind kind) {
  return kind == Fp8Kind::kE4M3FN || kind == Fp8Kind::kE4M3FNUZ ? 3 : 2;
}

constexpr bool is_fnuz(Fp8Kind kind) {
  return kind == Fp8Kind::kE4M3FNUZ || kind == Fp8Kind::kE5M2FNUZ;
}

// Name of the kind as of its table.
constexpr std::string_view fp8_name(Fp8Kind kind) {
  switch (kind) {
    case Fp8Kind::kE4M3FN:
      return "e4m3fn";
    case Fp8Kind::kE5M2:
      return "e5m2";
    case Fp8Kind::kE4M3FNUZ:
      return "e4m3fnuz";
    case Fp8Kind::kE5M2FNUZ:
      return "e5m2fnuz";
  }
  return "";
}

// The value of a code (its low 8 bits). Exact; a NaN keeps its sign but in the fnuz kinds.
constexpr float fp8_to_float(Fp8Kind kind, std::uint32_t code) {
  const int mantissa_bits = fp8_mantissa_bits(kind);
  const int bias = (mantissa_bits == 3 ? 7 : 15) + (is_fnuz(kind) ? 1 : 0);
  const std::uint32_t sign = (code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (is_fnuz(kind)) {
    if ((code & 0xFFu) == 0x80u) return std::bit_cast<float>(0x7FC00000u);
  } else if (mantissa_bits == 3) {
    if (magnitude == 0x7Fu) return std::bit_cast<float>(sign | 0x7FC00000u);
  } else if (magnitude >= 0x7Cu) {
    return std::bit_cast<float>(sign | 0x7F800000u | (magnitude == 0x7Cu ? 0u : 0x400000u));
  }
  const std::uint32_t exponent = magnitude >> mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
  if (exponent != 0)
    return std::bit_cast<float>(sign | (exponent + static_cast<std::uint32_t>(127 - bias)) << 23 |
                                mantissa << (23 - mantissa_bits));
  const float unit =
      std::bit_cast<float>(static_cast<std::uint32_t>(128 - bias - mantissa_bits) << 23);
  const float value = static_cast<float>(mantissa) * unit;
  return sign != 0 ? -value : value;
}

// The largest finite code of a kind.
constexpr std::uint32_t fp8_largest_code(Fp8Kind kind) {
  if (is_fnuz(kind)) return 0x7F;
  return kind == Fp8Kind::kE4M3FN ? 0x7E : 0x7B;
}

// The code nearest to a value that is no NaN: ties to the even code, beyond the largest finite one
// that one. In the fnuz kinds what rounds to zero has no sign.
constexpr std::uint32_t float_to_fp8(Fp8Kind kind, float value) {
  const int mantissa_bits = fp8_mantissa_bits(kind);
  const int bias = (mantissa_bits == 3 ? 7 : 15) + (is_fnuz(kind) ? 1 : 0);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t code = 0;
  if (magnitude < static_cast<std::uint32_t>(128 - bias) << 23) {
    // Below the smallest normal number: 2^23 units have no bit for less than a unit.
    const std::uint32_t shift = static_cast<std::uint32_t>(151 - bias - mantissa_bits) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(shift);
    code = std::bit_cast<std::uint32_t>(sum) - shift;
  } else {
    const int drop = 23 - mantissa_bits;
    const std::uint32_t odd = magnitude >> drop & 1u;
    code = ((magnitude + (1u << (drop - 1)) - 1u + odd) >> drop) -
           (static_cast<std::uint32_t>(127 - bias) << mantissa_bits);
  }
  const std::uint32_t most = fp8_largest_code(kind);
  if (code > most) code = most;
  return is_fnuz(kind) && code == 0 ? 0 : sign | code;
}

// The e4m3fn code whose value has the bits of `value` (any NaN of that sign); false when there is
// none.
constexpr bool float_to_e4m3fn_exact(float value, std::uint32_t& code) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  code = sign | 0x7Fu;
  if (magnitude > 0x7F800000u) return true;
  if (magnitude > 0x43E00000u) return false;  // above 448
  if (magnitude >= 0x3C800000u)               // 2^-6, the smallest normal
    code = sign | ((magnitude >> 20) - (120u << 3));
  else
    code = sign | static_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p9f);
  return std::bit_cast<std::uint32_t>(fp8_to_float(Fp8Kind::kE4M3FN, code)) == bits;
}

// value = fl(scale * level(code)).
template <Fp8Kind Kind>
struct Fp8Scheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = fp8_name(Kind);
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return fp8_to_float(Kind, code);
  }
};

// value = fl(level(code) / scale): the stored scale divides.
template <Fp8Kind Kind>
struct Fp8DivisorScheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = Kind == Fp8Kind::kE4M3FN     ? "e4m3fn divided"
                                                 : Kind == Fp8Kind::kE5M2     ? "e5m2 divided"
                                                 : Kind == Fp8Kind::kE4M3FNUZ ? "e4m3fnuz divided"
                                                                              : "e5m2fnuz divided";
  static constexpr std::string_view kReciprocalTable = fp8_name(Kind);
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return fp8_to_float(Kind, code);
  }
  static constexpr float value(const GroupValues& group, std::uint32_t code) {
    return fp8_to_float(Kind, code) / group.scale;
  }
};

}  // namespace packstone
