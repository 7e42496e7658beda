// ggml's rules of the K types: groups share a super scale.
#include <algorithm>
#include <cmath>

#include "packstone/base/small_float.h"
#include "packstone/quantize/gguf/block_encoder.h"
#include "packstone/quantize/gguf/parity_searches.h"

namespace packstone::gguf {
namespace {

constexpr AffineSweep kImportanceSweep{-0.9f, 0.05f, 36, false, true};

float mean_square(std::span<const float> x, float factor) {
  float sum = 0;
  for (const float value : x) sum += value * value;
  return factor * sum / static_cast<float>(x.size());
}

float sum_of(std::span<const float> x) {
  float sum = 0;
  for (const float value : x) sum += value;
  return sum;
}

// importance * sqrt(sigma2 + x^2) of columns [begin, begin + weights.size()).
void importance_weights(const BlockInput& input, std::size_t begin, float sigma2,
                        std::span<float> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float value = input.x[begin + i];
    weights[i] = input.importance[begin + i] * std::sqrt(sigma2 + value * value);
  }
}

// What is made of one block of an affine K type before its codes.
template <int Groups>
struct AffineBlock {
  float scale[Groups], minimum[Groups];  // of the groups, not yet stored
  std::uint8_t ls[Groups], lm[Groups];   // stored
  float d = 0, dmin = 0;
};

// Q2_K: groups of 16, scales and minimums of 4 bits; Q4_K, Q5_K: groups of 32 and 6 bits.
template <int Group, int High>
struct AffineKind {
  static constexpr int kGroups = 256 / Group;
  static constexpr bool kNarrow = Group == 16;
  static constexpr int kTop = kNarrow ? 15 : 63;
  static constexpr AffineSweep kSweep = kNarrow      ? AffineSweep{-0.5f, 0.1f, 15, true, false}
                                        : High == 15 ? AffineSweep{-1.0f, 0.1f, 20, false, false}
                                                     : AffineSweep{-0.5f, 0.1f, 15, false, false};
};

// Weights without an importance: |x|, for groups of 32 more by their root mean square.
template <class Kind>
void magnitude_weights(std::span<const float> x, std::span<float> weights) {
  const float floor = Kind::kNarrow ? 0.0f : std::sqrt(mean_square(x, 1));
  for (std::size_t i = 0; i < x.size(); ++i) weights[i] = floor + std::abs(x[i]);
}

// The largest of the values, or 0, over kTop is the step; stored numbers are the nearest.
template <class Kind>
float largest_steps(const float (&values)[Kind::kGroups], std::uint8_t (&stored)[Kind::kGroups]) {
  float largest = 0;
  for (const float value : values)
    if (value > largest) largest = value;
  const float inverse = largest > 0 ? static_cast<float>(Kind::kTop) / largest : 0.0f;
  for (int j = 0; j < Kind::kGroups; ++j)
    stored[j] = static_cast<std::uint8_t>(nearest_int(inverse * values[j]));
  return largest / static_cast<float>(Kind::kTop);
}

// What the fields of the block hold: a number that fits comes back as it is. Bits of others run
// over into their neighbours where the reference packs without a bound: in Q2_K, and in Q4_K with
// an importance.
template <class Kind>
void store_scales(AffineBlock<Kind::kGroups>& block, bool bounded) {
  for (int j = 0; j < Kind::kGroups; ++j) {
    std::uint8_t &ls = block.ls[j], &lm = block.lm[j];
    if (Kind::kNarrow) {
      lm = static_cast<std::uint8_t>((lm | ls >> 4) & 15);
      ls &= 15;
    } else if (bounded) {
      ls = std::min<std::uint8_t>(ls, Kind::kTop);
      lm = std::min<std::uint8_t>(lm, Kind::kTop);
    } else if (j >= 4) {
      // The top two bits lie above those of group j - 4, which are still whole.
      ls = static_cast<std::uint8_t>((ls & 63) | (block.ls[j - 4] >> 6) << 4);
      lm = static_cast<std::uint8_t>((lm & 63) | (block.lm[j - 4] >> 6) << 4);
    }
  }
  for (int j = 0; j < Kind::kGroups; ++j) {
    block.ls[j] &= Kind::kTop;
    block.lm[j] &= Kind::kTop;
  }
}

template <int Group, int High>
void affine_block(const BlockInput& input, const BlockOutput& output) {
  using Kind = AffineKind<Group, High>;
  AffineBlock<Kind::kGroups> block;
  const bool weighted = !input.importance.empty();
  const float sigma2 = weighted ? mean_square(input.x, Kind::kNarrow ? 1.0f : 2.0f) : 0.0f;
  float weights[Group], group_weight[Kind::kGroups];
  for (std::size_t j = 0; j < Kind::kGroups; ++j) {
    const auto x = input.x.subspan(Group * j, Group);
    if (weighted)
      importance_weights(input, Group * j, sigma2, weights);
    else
      magnitude_weights<Kind>(x, weights);
    group_weight[j] = sum_of(weights);
    const AffineScale fit =
        affine_scale(x, weights, High, weighted ? kImportanceSweep : Kind::kSweep,
                     output.codes.subspan(Group * j, Group));
    block.scale[j] = fit.scale;
    block.minimum[j] = fit.minimum;
  }
  block.d = weighted ? positive_scale(block.scale, group_weight, Kind::kTop, block.ls)
                     : largest_steps<Kind>(block.scale, block.ls);
  block.dmin = weighted ? positive_scale(block.minimum, group_weight, Kind::kTop, block.lm)
                        : largest_steps<Kind>(block.minimum, block.lm);
  store_scales<Kind>(block, High == 31 || !weighted);
  const std::uint32_t d = float_to_half(block.d), dmin = float_to_half(block.dmin);
  for (std::size_t j = 0; j < Kind::kGroups; ++j) {
    const std::uint32_t ls = block.ls[j], lm = block.lm[j];
    output.raw[j] = {{d, dmin, ls, lm}};
    const float scale = half_to_float(static_cast<std::uint16_t>(d)) * static_cast<float>(ls);
    if (scale == 0) continue;
    const float minimum = half_to_float(static_cast<std::uint16_t>(dmin)) * static_cast<float>(lm);
    for (std::size_t i = Group * j; i < Group * (j + 1); ++i)
      output.codes[i] = static_cast<std::uint8_t>(
          std::clamp(nearest_int((input.x[i] + minimum) / scale), 0, High));
  }
}

// The codes of a group of 16 against its stored scale; as they are where that is 0.
void signed_codes(std::span<const float> x, float scale, int half, std::span<std::uint8_t> codes) {
  if (scale == 0) return;
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] =
        static_cast<std::uint8_t>(half + std::clamp(nearest_int(x[i] / scale), -half, half - 1));
}

}  // namespace

void parity_q2_k(const BlockInput& input, const BlockOutput& output) {
  affine_block<16, 3>(input, output);
}

void parity_q4_k(const BlockInput& input, const BlockOutput& output) {
  affine_block<32, 15>(input, output);
}

void parity_q5_k(const BlockInput& input, const BlockOutput& output) {
  affine_block<32, 31>(input, output);
}

void parity_q3_k(const BlockInput& input, const BlockOutput& output) {
  const bool weighted = !input.importance.empty();
  const float sigma2 = weighted ? mean_square(input.x, 2) : 0.0f;
  float scales[16], group_weight[16];
  for (std::size_t j = 0; j < 16; ++j) {
    const auto x = input.x.subspan(16 * j, 16);
    const auto codes = output.codes.subspan(16 * j, 16);
    if (weighted) {
      float weights[16];
      importance_weights(input, 16 * j, sigma2, weights);
      group_weight[j] = sum_of(weights);
      scales[j] = symmetric_scale(x, weights, 4, codes);
    } else {
      scales[j] = coordinate_scale(x, 4, codes);
    }
  }
  std::uint8_t stored[16] = {};
  float d = 0;
  if (weighted) {
    d = symmetric_scale(scales, group_weight, 32, stored);
  } else if (const float edge = edge_value(scales); edge != 0) {
    const float inverse = -32.0f / edge;
    for (std::size_t j = 0; j < 16; ++j)
      stored[j] = static_cast<std::uint8_t>(
          32 +
          std::clamp<int>(static_cast<std::int8_t>(nearest_int(inverse * scales[j])), -32, 31));
    d = 1 / inverse;
  }
  const std::uint16_t half = float_to_half(d);
  for (std::size_t j = 0; j < 16; ++j) {
    output.raw[j] = {{half, stored[j]}};
    signed_codes(input.x.subspan(16 * j, 16),
                 half_to_float(half) * static_cast<float>(stored[j] - 32), 4,
                 output.codes.subspan(16 * j, 16));
  }
}

void parity_q6_k(const BlockInput& input, const BlockOutput& output) {
  float scales[16];
  for (std::size_t j = 0; j < 16; ++j)
    scales[j] = symmetric_scale(
        input.x.subspan(16 * j, 16),
        input.importance.empty() ? input.importance : input.importance.subspan(16 * j, 16), 32,
        output.codes.subspan(16 * j, 16));
  const float edge = edge_value(scales);
  if (std::abs(edge) < kZeroGroup) {
    std::ranges::fill(output.codes, std::uint8_t{0});
    std::ranges::fill(output.raw, RawParams{});
    return;
  }
  const float inverse = -128.0f / edge;
  const std::uint16_t half = float_to_half(1 / inverse);
  for (std::size_t j = 0; j < 16; ++j) {
    const auto stored = static_cast<std::int8_t>(std::min(127, nearest_int(inverse * scales[j])));
    output.raw[j] = {{half, static_cast<std::uint8_t>(stored)}};
    signed_codes(input.x.subspan(16 * j, 16), half_to_float(half) * static_cast<float>(stored), 32,
                 output.codes.subspan(16 * j, 16));
  }
}

}  // namespace packstone::gguf
