// ggml's rules of types whose blocks have one scale a group.
#include <algorithm>
#include <cmath>

#include "packstone/format/gguf_iq4_levels.h"
#include "packstone/format/gguf_nvfp4.h"
#include "packstone/quantize/gguf/block_encoder.h"
#include "packstone/quantize/gguf/level_rules.h"
#include "packstone/quantize/gguf/parity_searches.h"
#include "packstone/quantize/group_rules.h"

namespace packstone::gguf {
namespace {

constexpr AffineSweep kImportanceSweep{-0.9f, 0.05f, 36, false, true};

// 1 / d, or 0 where d is 0 or the quotient is no finite number.
float reciprocal(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

void block_weights(const BlockInput& input, std::span<float> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = input.importance[i] * std::sqrt(input.row_mean_square + input.x[i] * input.x[i]);
}

// Rules of the house that have codes of 32 bits (group_rules.h).
template <auto Rule>
void with_words(const BlockInput& input, const BlockOutput& output) {
  std::uint32_t words[32];
  Rule(input.x, std::span(words), output.raw[0]);
  std::ranges::copy(words, output.codes.begin());
}

template <int Half>
void weighted_symmetric(const BlockInput& input, const BlockOutput& output) {
  float weights[32];
  block_weights(input, weights);
  output.raw[0].pattern[0] = float_to_half(symmetric_scale(input.x, weights, Half, output.codes));
}

template <int High>
void weighted_affine(const BlockInput& input, const BlockOutput& output) {
  float weights[32];
  block_weights(input, weights);
  const AffineScale fit = affine_scale(input.x, weights, High, kImportanceSweep, output.codes);
  output.raw[0].pattern[0] = float_to_half(fit.scale);
  output.raw[0].pattern[1] = float_to_half(-fit.minimum);
}

// code = center + round_half_away(x / max|x|), for levels -1, 0, 1.
void absmax_ternary(std::span<const float> x, const BlockOutput& output) {
  const float d = largest_magnitude(x);
  const float inverse = reciprocal(d);
  output.raw[0].pattern[0] = float_to_half(d);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float level = x[i] * inverse;
    output.codes[i] = static_cast<std::uint8_t>(1 + (level >= 0.5f) - (level <= -0.5f));
  }
}

}  // namespace

void parity_q1_0(const BlockInput& input, const BlockOutput& output) {
  float sum = 0;
  for (const float value : input.x) sum += std::abs(value);
  output.raw[0].pattern[0] = float_to_half(sum / 128.0f);
  for (std::size_t i = 0; i < input.x.size(); ++i) output.codes[i] = input.x[i] >= 0.0f;
}

void parity_q2_0(const BlockInput& input, const BlockOutput& output) {
  absmax_ternary(input.x, output);
}

void parity_ternary(const BlockInput& input, const BlockOutput& output) {
  absmax_ternary(input.x, output);
}

void parity_q4_0(const BlockInput& input, const BlockOutput& output) {
  if (!input.importance.empty()) return weighted_symmetric<8>(input, output);
  with_words<quantize_q4_0>(input, output);
}

void parity_q4_1(const BlockInput& input, const BlockOutput& output) {
  if (!input.importance.empty()) return weighted_affine<15>(input, output);
  with_words<quantize_q4_1>(input, output);
}

void parity_q5_0(const BlockInput& input, const BlockOutput& output) {
  if (!input.importance.empty()) return weighted_symmetric<16>(input, output);
  const float d = edge_value(input.x) / -16.0f;
  const float inverse = reciprocal(d);
  output.raw[0].pattern[0] = float_to_half(d);
  for (std::size_t i = 0; i < 32; ++i)
    output.codes[i] =
        static_cast<std::uint8_t>(std::clamp(input.x[i] * inverse + 16.5f, 0.0f, 31.0f));
}

void parity_q5_1(const BlockInput& input, const BlockOutput& output) {
  if (!input.importance.empty()) return weighted_affine<31>(input, output);
  const auto [low, high] = std::ranges::minmax(input.x);
  const float d = (high - low) / 31.0f;
  const float inverse = reciprocal(d);
  output.raw[0].pattern[0] = float_to_half(d);
  output.raw[0].pattern[1] = float_to_half(low);
  for (std::size_t i = 0; i < 32; ++i)
    output.codes[i] =
        static_cast<std::uint8_t>(std::clamp((input.x[i] - low) * inverse + 0.5f, 0.0f, 31.0f));
}

void parity_q8_0(const BlockInput& input, const BlockOutput& output) {
  with_words<quantize_q8_0>(input, output);
}

void parity_mxfp4(const BlockInput& input, const BlockOutput& output) {
  const float largest = largest_magnitude(input.x);
  // The exponent is a byte of the reference and wraps below 2^-125.
  const int exponent = largest > 0 ? static_cast<int>(std::floor(std::log2(largest))) + 125 : 0;
  output.raw[0].pattern[0] = static_cast<std::uint32_t>(exponent) & 255u;
  e2m1_codes(input.x, e8m0_to_float(output.raw[0].pattern[0]), output.codes);
}

namespace {

// ggml's UE4M3 of a scale: half up, at most 448, and 448 from 248 on.
std::uint32_t ggml_ue4m3(float scale) {
  if (!(scale > 0.0f)) return 0;
  scale = std::min(scale, 448.0f);
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const int exponent = static_cast<int>(bits >> 23) - 120;
  if (exponent <= 0)
    return static_cast<std::uint32_t>(std::min(7, static_cast<int>(scale * 512.0f + 0.5f)));
  const std::uint32_t code =
      (static_cast<std::uint32_t>(exponent) << 3 | (bits >> 20 & 7u)) + (bits >> 19 & 1u);
  return exponent >= 15 || code >= 15u << 3 ? 0x7Eu : code;
}

}  // namespace

void parity_nvfp4(const BlockInput& input, const BlockOutput& output) {
  for (std::size_t group = 0; group < 4; ++group) {
    const auto x = input.x.subspan(16 * group, 16);
    std::uint32_t& scale = output.raw[group].pattern[0];
    scale = ggml_ue4m3(largest_magnitude(x) / 6.0f);
    e2m1_codes(x, ggml_ue4m3_to_float(scale), output.codes.subspan(16 * group, 16));
  }
}

namespace {

// The scale of least weighted error among the starts (levels[0] + t) / edge, t = -7..7, before it
// is stored.
float iq4_scale(std::span<const float> x, std::span<const float> w) {
  const float edge = edge_value(x);
  if (std::abs(edge) < kZeroGroup) return 0.0f;
  const float first = Iq4Scheme::level(0, 0);
  float scale = 0, best = 0;
  for (int step = -8; step <= 7; ++step) {
    const bool start = step == -8;
    const float inverse = start ? 1 / (-edge / first) : (static_cast<float>(step) + first) / edge;
    float sum_qx = 0, sum_q2 = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float level = Iq4Scheme::level(iq4_code(inverse * x[i]), 0);
      sum_qx += w[i] * level * x[i];
      sum_q2 += w[i] * level * level;
    }
    const bool better = start ? sum_q2 > 0 : sum_q2 > 0 && sum_qx * sum_qx > best * sum_q2;
    if (!better) continue;
    scale = sum_qx / sum_q2;
    best = scale * sum_qx;
  }
  return scale;
}

// The weights of columns [begin, begin + 32); sigma2 is twice the block's mean square.
void iq4_weights(const BlockInput& input, std::size_t begin, float sigma2,
                 std::span<float, 32> weights) {
  for (std::size_t i = 0; i < 32; ++i) {
    const float value = input.x[begin + i];
    weights[i] = input.importance.empty()
                     ? value * value
                     : input.importance[begin + i] * std::sqrt(sigma2 + value * value);
  }
}

float twice_mean_square(std::span<const float> x) {
  float sum = 0;
  for (const float value : x) sum += value * value;
  return sum * (2.0f / static_cast<float>(x.size()));
}

}  // namespace

void parity_iq4_nl(const BlockInput& input, const BlockOutput& output) {
  float weights[32];
  iq4_weights(input, 0, twice_mean_square(input.x), weights);
  const float scale = iq4_scale(input.x, weights);
  output.raw[0].pattern[0] = float_to_half(scale);
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  for (std::size_t i = 0; i < 32; ++i) output.codes[i] = iq4_code(inverse * input.x[i]);
}

void parity_iq4_xs(const BlockInput& input, const BlockOutput& output) {
  const float sigma2 = twice_mean_square(input.x);
  float scales[8];
  for (std::size_t group = 0; group < 8; ++group) {
    float weights[32];
    iq4_weights(input, 32 * group, sigma2, weights);
    scales[group] = iq4_scale(input.x.subspan(32 * group, 32), weights);
  }
  // The codes are chosen against the unrounded scale.
  const float d = -edge_value(scales) / 32.0f;
  const float inverse = d != 0 ? 1 / d : 0.0f;
  for (std::size_t group = 0; group < 8; ++group) {
    const int level = std::clamp(nearest_int(inverse * scales[group]), -32, 31);
    output.raw[group].pattern[0] = float_to_half(d);
    output.raw[group].pattern[1] = static_cast<std::uint32_t>(level + 32);
    const float scale = d * static_cast<float>(level);
    const float inverse_scale = scale != 0 ? 1 / scale : 0.0f;
    for (std::size_t i = 32 * group; i < 32 * group + 32; ++i)
      output.codes[i] = iq4_code(inverse_scale * input.x[i]);
  }
}

}  // namespace packstone::gguf
