// The parameters that many formats store for a group. A format names one of these sets beside the
// base of its layout; each gives kParams, values and encode as format.h says. Where the parameters
// lie is the layout's. Device-safe.
#pragma once

#include <array>
#include <cstdint>

#include "packstone/format/e2m1.h"
#include "packstone/format/format.h"

namespace packstone {

// A number whose pattern has the coding kF16, kMetadata or kE8M0.
template <ParamCoding Coding>
struct CodedNumber {
  static_assert(Coding == ParamCoding::kF16 || Coding == ParamCoding::kMetadata ||
                Coding == ParamCoding::kE8M0);

  static constexpr ParamSpec spec(ParamKind kind) {
    return {kind, Coding, Coding == ParamCoding::kF16 ? 16 : Coding == ParamCoding::kE8M0 ? 8 : 0};
  }
  static constexpr float decode(std::uint32_t pattern, const FormatParams& params) {
    if constexpr (Coding == ParamCoding::kE8M0)
      return e8m0_to_float(pattern);
    else
      return decode_float(type(params), pattern);
  }
  [[gnu::always_inline]] static constexpr bool encode(float number, const FormatParams& params,
                                                      std::uint32_t& pattern) {
    if constexpr (Coding == ParamCoding::kE8M0)
      return float_to_e8m0_exact(number, pattern);
    else
      return encode_float_exact(type(params), number, pattern);
  }

 private:
  static constexpr FloatType type(const FormatParams& params) {
    return Coding == ParamCoding::kF16 ? FloatType::kF16 : params.metadata;
  }
};

// A scale alone: scale * (q - Center), or scale * level with a table and Center 0.
template <ParamCoding Coding, std::int32_t Center = 0>
struct ScaleParams {
  static constexpr std::array<ParamSpec, 1> kParams{CodedNumber<Coding>::spec(ParamKind::kScale)};

  static constexpr GroupValues values(const RawParams& raw, const FormatParams& params) {
    return {CodedNumber<Coding>::decode(raw.pattern[0], params), kNoOffset, Center};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams& params,
                               RawParams& raw) {
    return group.center == Center && group.offset == 0.0f &&
           CodedNumber<Coding>::encode(group.scale, params, raw.pattern[0]);
  }
};

// A scale and a zero point: scale * (q - zero). The zero point is stored in Bits bits less Bias,
// modulo 2^Bits, in words less WordBias (ParamSpec::word_bias).
template <ParamCoding Coding, int Bits, std::uint32_t WordBias = 0, std::uint32_t Bias = 0>
struct ScaleZeroParams {
  static constexpr std::array<ParamSpec, 2> kParams{
      CodedNumber<Coding>::spec(ParamKind::kScale),
      ParamSpec{ParamKind::kZero, ParamCoding::kUnsigned, Bits, WordBias}};

  static constexpr GroupValues values(const RawParams& raw, const FormatParams& params) {
    return {CodedNumber<Coding>::decode(raw.pattern[0], params), kNoOffset,
            static_cast<std::int32_t>((raw.pattern[1] + Bias) & kMask)};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams& params,
                               RawParams& raw) {
    const auto zero = static_cast<std::uint32_t>(group.center);
    raw.pattern[1] = (zero - Bias) & kMask;
    return zero <= kMask && group.offset == 0.0f &&
           CodedNumber<Coding>::encode(group.scale, params, raw.pattern[0]);
  }

 private:
  static constexpr std::uint32_t kMask = (1u << Bits) - 1;
};

// A scale and an offset: fl(scale * q + offset).
template <ParamCoding Coding>
struct ScaleOffsetParams {
  static constexpr std::array<ParamSpec, 2> kParams{CodedNumber<Coding>::spec(ParamKind::kScale),
                                                    CodedNumber<Coding>::spec(ParamKind::kOffset)};

  static constexpr GroupValues values(const RawParams& raw, const FormatParams& params) {
    return {CodedNumber<Coding>::decode(raw.pattern[0], params),
            CodedNumber<Coding>::decode(raw.pattern[1], params), 0};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams& params,
                               RawParams& raw) {
    return group.center == 0 && CodedNumber<Coding>::encode(group.scale, params, raw.pattern[0]) &&
           CodedNumber<Coding>::encode(group.offset, params, raw.pattern[1]);
  }
};

// Parameters that several groups share cannot be chosen for one group alone.
struct SharedParams {
  static constexpr bool encode(const GroupValues&, const FormatParams&, RawParams&) {
    return false;
  }
};

// d, binary16, of the block and a whole s of Bits bits of the group: scale = d * s, exact with up
// to 13 bits. s is stored plus Bias.
template <int Bits, int Bias, std::int32_t Center>
struct SuperScaleParams : SharedParams {
  static constexpr std::array<ParamSpec, 2> kParams{{
      {ParamKind::kSuperScale, ParamCoding::kF16, 16},
      {ParamKind::kScale, ParamCoding::kUnsigned, Bits},
  }};
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const auto s = static_cast<std::int32_t>(raw.pattern[1]) - Bias;
    return {decode_float(FloatType::kF16, raw.pattern[0]) * static_cast<float>(s), kNoOffset,
            Center};
  }
};

// The same with odd multiples: scale = d * ((2 s + 1) * Eighths / 8), exact with up to 12 bits.
template <int Bits, int Eighths, std::int32_t Center>
struct OddSuperScaleParams : SharedParams {
  static constexpr std::array<ParamSpec, 2> kParams{{
      {ParamKind::kSuperScale, ParamCoding::kF16, 16},
      {ParamKind::kScale, ParamCoding::kUnsigned, Bits},
  }};
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const float factor = 0.125f * static_cast<float>(Eighths * (2 * raw.pattern[1] + 1));
    return {decode_float(FloatType::kF16, raw.pattern[0]) * factor, kNoOffset, Center};
  }
};

// d and dmin, binary16, of the block and a whole s and m of Bits bits of the group: scale = d * s,
// offset = -(dmin * m); both exact with up to 13 bits.
template <int Bits>
struct SuperScaleOffsetParams : SharedParams {
  static constexpr std::array<ParamSpec, 4> kParams{{
      {ParamKind::kSuperScale, ParamCoding::kF16, 16},
      {ParamKind::kSuperOffset, ParamCoding::kF16, 16},
      {ParamKind::kScale, ParamCoding::kUnsigned, Bits},
      {ParamKind::kOffset, ParamCoding::kUnsigned, Bits},
  }};
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const float d = decode_float(FloatType::kF16, raw.pattern[0]);
    const float dmin = decode_float(FloatType::kF16, raw.pattern[1]);
    return {d * static_cast<float>(raw.pattern[2]), -(dmin * static_cast<float>(raw.pattern[3])),
            0};
  }
};

}  // namespace packstone
