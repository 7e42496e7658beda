#include "packstone/quantize/group_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace packstone {
namespace {

// The integer nearest to x, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bit below 1.
float round_even(float x) {
  constexpr float kMagic = 12582912.0f;
  return (x + kMagic) - kMagic;
}

// The integer nearest to x, ties away from zero, for |x| < 2^22. x - round_even(x) is exact.
float round_away(float x) {
  const float even = round_even(x);
  return std::abs(x - even) == 0.5f ? x + std::copysign(0.5f, x) : even;
}

// x without its fraction, kept in the range of a code.
std::uint32_t to_code(float x, std::uint32_t high) {
  return static_cast<std::uint32_t>(
      static_cast<std::int32_t>(std::clamp(x, 0.0f, static_cast<float>(high))));
}

bool has_nan(std::span<const float> x) {
  return std::ranges::any_of(x, [](float value) { return std::isnan(value); });
}

// 1 / d, or 0 where d is 0 or the quotient is no finite number.
float reciprocal(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

}  // namespace

void quantize_q8_0(std::span<const float> x, std::span<std::uint32_t> codes, RawParams& raw) {
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::abs(value));
  const bool nan = has_nan(x);
  const float d = nan ? std::numeric_limits<float>::quiet_NaN() : amax / 127.0f;
  const float inverse = nan ? 0.0f : reciprocal(d);
  raw.pattern[0] = float_to_half(d);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // An infinite d has the reciprocal 0, and infinity times 0 is no number.
    const float level = std::isfinite(x[i]) ? round_away(x[i] * inverse) : 0.0f;
    codes[i] = static_cast<std::uint32_t>(128 + static_cast<std::int32_t>(level));
  }
}

void quantize_q4_0(std::span<const float> x, std::span<std::uint32_t> codes, RawParams& raw) {
  float amax = 0, edge = 0;
  for (const float value : x)
    if (amax < std::abs(value)) {
      amax = std::abs(value);
      edge = value;
    }
  const bool nan = has_nan(x);
  const float d = nan ? std::numeric_limits<float>::quiet_NaN() : edge / -8.0f;
  const float inverse = nan ? 0.0f : reciprocal(d);
  raw.pattern[0] = float_to_half(d);
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = std::isfinite(x[i]) ? to_code(x[i] * inverse + 8.5f, 15) : 8;
}

void quantize_q4_1(std::span<const float> x, std::span<std::uint32_t> codes, RawParams& raw) {
  float low = std::numeric_limits<float>::max(), high = -low;
  for (const float value : x) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const bool nan = has_nan(x);
  const float d = nan ? std::numeric_limits<float>::quiet_NaN() : (high - low) / 15.0f;
  const float inverse = nan ? 0.0f : reciprocal(d);
  raw.pattern[0] = float_to_half(d);
  raw.pattern[1] = float_to_half(low);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float level = (x[i] - low) * inverse + 0.5f;
    codes[i] = std::isfinite(level) ? to_code(level, 15) : 0;
  }
}

void quantize_mlx_affine(std::span<const float> x, int bits, FloatType metadata,
                         std::span<std::uint32_t> codes, RawParams& raw) {
  const auto [low, high] = std::ranges::minmax(x);
  const float top = static_cast<float>((1u << bits) - 1u);
  const bool edge_is_low = std::abs(low) > std::abs(high);
  const float edge = edge_is_low ? low : high;
  float scale = std::max((high - low) / top, 1e-7f);
  if (!edge_is_low) scale = -scale;
  float offset = 0;
  const float edge_code = std::rint(edge / scale);
  if (edge_code != 0) {
    scale = edge / edge_code;
    offset = edge;
  }
  raw.pattern[0] = encode_float(metadata, scale);
  raw.pattern[1] = encode_float(metadata, offset);
  const float stored_scale = decode_float(metadata, raw.pattern[0]);
  const float stored_offset = decode_float(metadata, raw.pattern[1]);
  const bool usable =
      stored_scale != 0 && std::isfinite(stored_scale) && std::isfinite(stored_offset);
  if (!usable || !std::ranges::all_of(x, [](float value) { return std::isfinite(value); })) {
    std::ranges::fill(codes, 0u);
    return;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float level = std::clamp((x[i] - stored_offset) / stored_scale, 0.0f, top);
    codes[i] = static_cast<std::uint32_t>(static_cast<std::int32_t>(round_even(level)));
  }
}

}  // namespace packstone
