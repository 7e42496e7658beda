#include "packstone/quantize/gguf/affine_search.h"

#include <algorithm>

namespace packstone::gguf {
namespace {

constexpr float kCuts2[] = {-0.1f, 0.0f, 0.1f, 0.2f, 0.3f};
constexpr float kLowCuts4[] = {0.0f, 0.05f, 0.1f};
constexpr float kHighCuts4[] = {-0.03f, 0.0f, 0.04f, 0.08f, 0.13f, 0.2f};
constexpr float kLowCuts5[] = {0.0f, 0.02f, 0.045f};
constexpr float kHighCuts5[] = {-0.015f, 0.0f, 0.015f, 0.03f, 0.05f, 0.08f};

struct Cuts {
  std::span<const float> low, high;
};

Cuts cuts_of(int high) {
  if (high == 3) return {kCuts2, kCuts2};
  if (high == 15) return {kLowCuts4, kHighCuts4};
  return {kLowCuts5, kHighCuts5};
}

Float4 affine_levels(Float4 x, float inverse, float shift, float high) {
  return round4(clamp4(x * inverse + shift, 0.0f, high));
}

// The two-parameter fit of the codes nearest at (1 / inverse, offset = -shift / inverse).
AffineFit fit_affine(const Group& group, const AffineSums& sums, float inverse, float shift,
                     int high, bool bounded) {
  Float4 lanes_l = splat(0), lanes_l2 = splat(0), lanes_xl = splat(0);
  for (int i = 0; i < group.count; i += 4) {
    const Float4 x = load4(group.x + i), w = load4(group.w + i);
    const Float4 level = affine_levels(x, inverse, shift, static_cast<float>(high));
    const Float4 weighted = w * level;
    lanes_l += weighted;
    lanes_l2 += weighted * level;
    lanes_xl += weighted * x;
  }
  const float l = sum4(lanes_l), l2 = sum4(lanes_l2), xl = sum4(lanes_xl);
  AffineFit fit;
  const float determinant = sums.w * l2 - l * l;
  if (determinant > 0) {
    fit.scale = (sums.w * xl - sums.x * l) / determinant;
    fit.offset = (l2 * sums.x - l * xl) / determinant;
  } else {
    fit.offset = sums.x / sums.w;
  }
  if (bounded && fit.offset > 0) {
    fit.offset = 0;
    fit.scale = l2 > 0 ? xl / l2 : 0.0f;
  }
  if (!(fit.scale > 0)) {
    fit.scale = 0;
    fit.offset = sums.x / sums.w;
    if (bounded) fit.offset = std::min(fit.offset, 0.0f);
  }
  return fit;
}

// Fits the codes of a start and says the error of the fit with codes nearest to it.
AffineFit tried_affine(const Group& group, const AffineSums& sums, float inverse, float shift,
                       int high, bool bounded) {
  AffineFit fit = fit_affine(group, sums, inverse, shift, high, bounded);
  fit.error = affine_pass(group, fit.scale, fit.offset, high).error;
  return fit;
}

}  // namespace

AffineSums affine_sums(const Group& group) {
  AffineSums sums;
  Float4 lanes_w = splat(0), lanes_x = splat(0), lanes_x2 = splat(0);
  for (int i = 0; i < group.count; i += 4) {
    const Float4 x = load4(group.x + i), w = load4(group.w + i);
    lanes_w += w;
    lanes_x += w * x;
    lanes_x2 += w * (x * x);
  }
  sums.w = sum4(lanes_w);
  sums.x = sum4(lanes_x);
  sums.x2 = sum4(lanes_x2);
  sums.low = *std::min_element(group.x, group.x + group.count);
  sums.high = *std::max_element(group.x, group.x + group.count);
  return sums;
}

AffinePass affine_pass(const Group& group, float scale, float offset, int high) {
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  Float4 lanes_error = splat(0), lanes_l = splat(0);
  for (int i = 0; i < group.count; i += 4) {
    const Float4 x = load4(group.x + i), w = load4(group.w + i);
    const Float4 shifted = x - offset;
    const Float4 level = round4(clamp4(shifted * inverse, 0.0f, static_cast<float>(high)));
    const Float4 difference = shifted - scale * level;
    lanes_error += w * (difference * difference);
    lanes_l += w * level;
  }
  return {sum4(lanes_error), sum4(lanes_l)};
}

void affine_codes(const Group& group, float scale, float offset, int high, std::uint8_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  for (int i = 0; i < group.count; i += 4) {
    const Float4 shifted = load4(group.x + i) - offset;
    const Float4 level = round4(clamp4(shifted * inverse, 0.0f, static_cast<float>(high)));
    for (int k = 0; k < 4; ++k) codes[i + k] = static_cast<std::uint8_t>(level[k]);
  }
}

AffineFit best_affine(const Group& group, const AffineSums& sums, int high, bool bounded,
                      const AffineFit& known) {
  constexpr int kRounds = 6;
  const float low = bounded ? std::min(sums.low, 0.0f) : sums.low;
  const float width = sums.high - low;
  AffineFit best{0, sums.x / sums.w, 0};
  if (bounded) best.offset = std::min(best.offset, 0.0f);
  best.error = affine_pass(group, 0, best.offset, high).error;
  if (!(width >= kLeastStored)) return best;
  auto take = [&](float inverse, float shift) {
    const AffineFit fit = tried_affine(group, sums, inverse, shift, high, bounded);
    const bool better = fit.error < best.error;
    if (better) best = fit;
    return better;
  };
  const Cuts cuts = cuts_of(high);
  for (const float low_cut : cuts.low)
    for (const float high_cut : cuts.high) {
      const float inverse = static_cast<float>(high) / (width * (1 - low_cut - high_cut));
      take(inverse, -(low + low_cut * width) * inverse);
    }
  if (std::isnormal(known.scale) && known.scale > 0)
    take(1 / known.scale, -known.offset / known.scale);
  for (int i = 0; i < kRounds && best.scale > 0; ++i)
    if (!take(1 / best.scale, -best.offset / best.scale)) break;
  return best;
}

}  // namespace packstone::gguf
