// Searches for the scale (and offset) of one group of levels, least squares under weights.
// All sums are of four lanes in one fixed order. Groups have 16, 32, 64, 128 or 256 values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "packstone/base/small_float.h"
#include "packstone/quantize/gguf/lanes.h"
#include "packstone/quantize/gguf/level_rules.h"

namespace packstone::gguf {

// Below this no value of a group can be stored but as zero: half the least binary16 is 2^-25.
inline constexpr float kLeastStored = 0x1p-26f;
inline constexpr float kHalfLargest = 65504.0f;

// Ratios of start scales: first, first * factor, ...
struct Starts {
  float first, factor;
  int count;
};

// Levels low..high one apart, codes counted from low. `starts`: edge levels as parts of the limit.
template <int Low, int High, int StartSet>
struct LinearGrid {
  static constexpr float kLow = Low, kHigh = High;
  static constexpr bool kMirrored = Low == -High;  // a negative scale gives nothing new
  static constexpr Starts kStarts = StartSet == 2   ? Starts{1.3f, 0.9f, 20}
                                    : StartSet == 3 ? Starts{1.12f, 0.95f, 15}
                                    : StartSet == 4 ? Starts{1.1f, 0.97f, 20}
                                    : StartSet == 5 ? Starts{1.05f, 0.985f, 20}
                                    : StartSet == 6 ? Starts{1.02f, 0.992f, 12}
                                                    : Starts{1.004f, 0.997f, 6};
  static Float4 nearest(Float4 t) { return round4(clamp4(t, kLow, kHigh)); }
  static std::uint8_t code(float t) {
    return static_cast<std::uint8_t>(static_cast<int>(nearest(splat(t))[0]) - Low);
  }
};

struct Iq4Grid {
  static constexpr float kLow = -127, kHigh = 113;
  static constexpr bool kMirrored = false;
  static constexpr Starts kStarts{1.1f, 0.97f, 20};
  static Float4 nearest(Float4 t) {
    return Float4{level(t[0]), level(t[1]), level(t[2]), level(t[3])};
  }
  static std::uint8_t code(float t) { return iq4_code(t); }

 private:
  static float level(float t) { return Iq4Scheme::level(iq4_code(t), 0); }
};

// Values, weights, and their products of one group.
struct Group {
  const float* x;
  const float* w;
  int count;
};

// Sums of x ~ scale * level with levels nearest at a given scale: the best scale for these levels
// is xl / l2, and lowers sum w x^2 by gain.
struct ScaleFit {
  float scale = 0, gain = 0;
};

// The fit of the levels that are nearest at 1 / inverse.
template <class Grid>
ScaleFit fit_scale(const Group& group, float inverse) {
  Float4 xl = splat(0), l2 = splat(0);
  for (int i = 0; i < group.count; i += 4) {
    const Float4 x = load4(group.x + i), w = load4(group.w + i);
    const Float4 level = Grid::nearest(x * inverse);
    const Float4 weighted = w * level;
    xl += weighted * x;
    l2 += weighted * level;
  }
  const float sum_xl = sum4(xl), sum_l2 = sum4(l2);
  if (!(sum_l2 > 0)) return {};
  return {sum_xl / sum_l2, sum_xl * sum_xl / sum_l2};
}

// sum w (x - scale * level)^2 with the nearest levels; scale 0 makes all values 0.
template <class Grid>
float scale_error(const Group& group, float scale) {
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  Float4 sum = splat(0);
  for (int i = 0; i < group.count; i += 4) {
    const Float4 x = load4(group.x + i), w = load4(group.w + i);
    const Float4 difference = x - scale * Grid::nearest(x * inverse);
    sum += w * (difference * difference);
  }
  return sum4(sum);
}

// scale_codes(group, scale, codes): the codes of the nearest levels.
template <class Grid>
void scale_codes(const Group& group, float scale, std::uint8_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  for (int i = 0; i < group.count; ++i) codes[i] = Grid::code(group.x[i] * inverse);
}

// The value of largest magnitude, the first of equals.
inline float edge_of(const float* x, int count) {
  float edge = 0;
  for (int i = 0; i < count; ++i)
    if (std::abs(x[i]) > std::abs(edge)) edge = x[i];
  return edge;
}

// Lloyd's iteration: the best scale for the levels, the nearest levels for the scale, while the
// gain rises.
template <class Grid>
ScaleFit refine_scale(const Group& group, ScaleFit fit) {
  constexpr int kRounds = 8;
  for (int i = 0; i < kRounds && fit.scale != 0; ++i) {
    const ScaleFit next = fit_scale<Grid>(group, 1 / fit.scale);
    if (!(next.gain > fit.gain)) break;
    fit = next;
  }
  return fit;
}

// sqrt(sum w x^2 / sum w).
inline float weighted_rms(const Group& group) {
  Float4 x2 = splat(0), sum = splat(0);
  for (int i = 0; i < group.count; i += 4) {
    const Float4 x = load4(group.x + i), w = load4(group.w + i);
    x2 += w * (x * x);
    sum += w;
  }
  return std::sqrt(sum4(x2) / sum4(sum));
}

// best_scale(group, known): the scale of most gain, of either sign. Starts put the edge value on
// parts of either limit of the levels, and multiples of the root mean square on the limit; Lloyd's
// iteration goes on from the best start of each limit and from `known` (0: none). 0 where nothing
// can be stored.
template <class Grid>
ScaleFit best_scale(const Group& group, float known) {
  constexpr float kSpans[] = {1.1f, 1.5f, 2.0f, 2.5f, 3.0f};
  const float edge = edge_of(group.x, group.count);
  if (!(std::abs(edge) >= kLeastStored)) return {};
  const float rms = std::copysign(std::max(weighted_rms(group), kLeastStored), edge);
  ScaleFit best;
  if (std::abs(known) >= kLeastStored)
    best = refine_scale<Grid>(group, fit_scale<Grid>(group, 1 / known));
  for (const float limit : {Grid::kHigh, Grid::kLow}) {
    if (Grid::kMirrored && limit < 0) break;
    ScaleFit start;
    auto take = [&](float inverse) {
      const ScaleFit fit = fit_scale<Grid>(group, inverse);
      if (fit.gain > start.gain) start = fit;
    };
    float ratio = Grid::kStarts.first;
    for (int i = 0; i < Grid::kStarts.count; ++i, ratio *= Grid::kStarts.factor)
      take(ratio * limit / edge);
    for (const float span : kSpans) take(limit / (span * rms));
    const ScaleFit fit = refine_scale<Grid>(group, start);
    if (fit.gain > best.gain) best = fit;
  }
  return best;
}

// The binary16 `steps` steps of magnitude from `half`, which is not below 0 nor above the largest.
inline std::uint16_t half_step(std::uint16_t half, int steps) {
  const int magnitude = std::clamp((half & 0x7FFF) + steps, 0, 0x7BFF);
  return static_cast<std::uint16_t>((half & 0x8000) | magnitude);
}

// The binary16 nearest to x, at most the largest finite one; never -0.
inline std::uint16_t bounded_half(float x) {
  const std::uint16_t half = float_to_half(x > kHalfLargest    ? kHalfLargest
                                           : x < -kHalfLargest ? -kHalfLargest
                                                               : x);
  return half == 0x8000 ? std::uint16_t{0} : half;
}

}  // namespace packstone::gguf
