#include "packstone/quantize/gguf/parity_searches.h"

#include <algorithm>
#include <cmath>

#include "packstone/quantize/gguf/lanes.h"

namespace packstone::gguf {
namespace {

// Sums of a fit x ~ scale * l: (sum w x l) / (sum w l^2).
struct Fit {
  float xl = 0, l2 = 0;
  void add(float w, float x, int l) {
    const auto level = static_cast<float>(l);
    xl += w * x * level;
    l2 += w * level * level;
  }
};

constexpr int kSymmetricTries = 20;  // 19 and one to fill four lanes

// The fits of levels nearest at four scales: each lane has the operations of Fit in their order.
void symmetric_fits(std::span<const float> x, std::span<const float> w, int half,
                    const float* inverse, Fit* fits) {
  const Float4 inverses = load4(inverse);
  const auto limit = static_cast<float>(half);
  Float4 xl = splat(0), l2 = splat(0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Float4 level = round4(clamp4(inverses * x[i], -limit, limit - 1));
    const float weight = w.empty() ? x[i] * x[i] : w[i];
    xl += (weight * x[i]) * level;
    l2 += (weight * level) * level;
  }
  for (int k = 0; k < 4; ++k) fits[k] = {xl[k], l2[k]};
}

}  // namespace

float edge_value(std::span<const float> x) {
  float magnitude = 0, edge = 0;
  for (const float value : x)
    if (std::abs(value) > magnitude) {
      magnitude = std::abs(value);
      edge = value;
    }
  return edge;
}

float symmetric_scale(std::span<const float> x, std::span<const float> w, int half,
                      std::span<std::uint8_t> codes) {
  const float edge = edge_value(x);
  if (std::abs(edge) < kZeroGroup) {
    std::ranges::fill(codes, std::uint8_t{0});
    return 0.0f;
  }
  float inverses[kSymmetricTries];
  Fit fits[kSymmetricTries];
  inverses[0] = inverses[kSymmetricTries - 1] = static_cast<float>(-half) / edge;
  for (int step = -9, k = 1; step <= 9; ++step)
    if (step != 0)
      inverses[k++] = -(static_cast<float>(half) + 0.1f * static_cast<float>(step)) / edge;
  for (int k = 0; k < kSymmetricTries; k += 4) symmetric_fits(x, w, half, inverses + k, fits + k);
  float inverse = inverses[0];
  float scale = fits[0].l2 != 0 ? fits[0].xl / fits[0].l2 : 0.0f;
  float best = scale * fits[0].xl;
  for (int k = 1; k < kSymmetricTries - 1; ++k) {
    const Fit& fit = fits[k];
    if (!(fit.l2 > 0 && fit.xl * fit.xl > best * fit.l2)) continue;
    inverse = inverses[k];
    scale = fit.xl / fit.l2;
    best = scale * fit.xl;
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] =
        static_cast<std::uint8_t>(half + std::clamp(nearest_int(inverse * x[i]), -half, half - 1));
  return scale;
}

float coordinate_scale(std::span<const float> x, int half, std::span<std::uint8_t> codes) {
  const float edge = edge_value(x);
  if (std::abs(edge) < kZeroGroup) {
    std::ranges::fill(codes, std::uint8_t{0});
    return 0.0f;
  }
  const float inverse = static_cast<float>(-half) / edge;
  Fit fit;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int level = std::clamp(nearest_int(inverse * x[i]), -half, half - 1);
    codes[i] = static_cast<std::uint8_t>(level + half);
    fit.add(x[i] * x[i], x[i], level);
  }
  for (int pass = 0; pass < 5; ++pass) {
    bool changed = false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float w = x[i] * x[i];
      const int level = codes[i] - half;
      Fit moved{fit.xl - w * x[i] * static_cast<float>(level), 0};
      if (!(moved.xl > 0)) continue;
      moved.l2 = fit.l2 - w * static_cast<float>(level) * static_cast<float>(level);
      const int tried = std::clamp(nearest_int(x[i] * moved.l2 / moved.xl), -half, half - 1);
      if (tried == level) continue;
      moved.add(w, x[i], tried);
      if (!(moved.l2 > 0 && moved.xl * moved.xl * fit.l2 > fit.xl * fit.xl * moved.l2)) continue;
      codes[i] = static_cast<std::uint8_t>(tried + half);
      fit = moved;
      changed = true;
    }
    if (!changed) break;
  }
  return fit.l2 > 0.0f ? fit.xl / fit.l2 : 0.0f;
}

namespace {

struct AffineRange {
  float low, high, sum_w, sum_x;
};

AffineRange affine_range(std::span<const float> x, std::span<const float> w) {
  AffineRange range{x[0], x[0], w[0], w[0] * x[0]};
  for (std::size_t i = 1; i < x.size(); ++i) {
    if (x[i] < range.low) range.low = x[i];
    if (x[i] > range.high) range.high = x[i];
    range.sum_w += w[i];
    range.sum_x += w[i] * x[i];
  }
  if (range.low > 0) range.low = 0;
  return range;
}

Float4 magnitude4(Float4 x) {
  return std::bit_cast<Float4>(std::bit_cast<Int4>(x) & 0x7FFFFFFF);
}

// The codes of four positions; unbounded ones as nearest_int has them, however large.
Float4 affine_levels(Float4 position, float high, bool bounded) {
  if (bounded) return round4(clamp4(position, 0.0f, high));
  const Int4 bits = std::bit_cast<Int4>(position + splat(12582912.0f));
  const Int4 nearest = (bits & 0x007FFFFF) - 0x00400000;
  return clamp4(__builtin_convertvector(nearest, Float4), 0.0f, high);
}

// Four two-parameter fits at once, a lane each, of codes nearest at (1 / inverse, low). A fit
// without a determinant has the error infinity.
struct AffineTries {
  Float4 scale, low, error;
};

AffineTries affine_tries(std::span<const float> x, std::span<const float> w,
                         const AffineRange& range, Float4 inverse, float low, int high,
                         const AffineSweep& sweep) {
  Float4 levels[32];
  const auto top = static_cast<float>(high);
  Float4 sum_l = splat(0), sum_l2 = splat(0), sum_xl = splat(0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    levels[i] = affine_levels(inverse * (x[i] - low), top, sweep.bounded);
    const Float4 weighted = w[i] * levels[i];
    sum_l += weighted;
    sum_l2 += weighted * levels[i];
    sum_xl += weighted * x[i];
  }
  const Float4 determinant = range.sum_w * sum_l2 - sum_l * sum_l;
  AffineTries tries{(range.sum_w * sum_xl - range.sum_x * sum_l) / determinant,
                    (sum_l2 * range.sum_x - sum_l * sum_xl) / determinant, splat(0)};
  for (int k = 0; k < 4; ++k)
    if (tries.low[k] > 0) {
      tries.low[k] = 0;
      tries.scale[k] = sum_xl[k] / sum_l2[k];
    }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Float4 difference = tries.scale * levels[i] + tries.low - x[i];
    tries.error += w[i] * (sweep.absolute ? magnitude4(difference) : difference * difference);
  }
  for (int k = 0; k < 4; ++k)
    if (!(determinant[k] > 0)) tries.error[k] = INFINITY;
  return tries;
}

float first_error(std::span<const float> x, std::span<const float> w, float inverse, float low,
                  int high, bool absolute) {
  const float scale = 1 / inverse;
  float error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int level = std::clamp(nearest_int(inverse * (x[i] - low)), 0, high);
    const float difference = scale * static_cast<float>(level) + low - x[i];
    error += w[i] * (absolute ? std::abs(difference) : difference * difference);
  }
  return error;
}

}  // namespace

AffineScale affine_scale(std::span<const float> x, std::span<const float> w, int high,
                         const AffineSweep& sweep, std::span<std::uint8_t> codes) {
  const AffineRange range = affine_range(x, w);
  float low = range.low;
  const float top = range.high;
  if (sweep.bounded ? top <= low : top == low) {
    std::ranges::fill(codes, std::uint8_t{0});
    return {0.0f, -low};
  }
  // The codes are those nearest at (1 / codes_inverse, codes_low).
  float codes_inverse = static_cast<float>(high) / (top - low), codes_low = low;
  float scale = 1 / codes_inverse;
  float best = first_error(x, w, codes_inverse, low, high, sweep.absolute);
  bool bounded = false;
  // Each try starts from the offset of the best so far: four at a time, those behind a better one
  // again.
  for (int step = 0; step <= sweep.steps;) {
    Float4 inverse;
    for (int k = 0; k < 4; ++k)
      inverse[k] =
          (sweep.first + sweep.delta * static_cast<float>(step + k) + static_cast<float>(high)) /
          (top - low);
    const AffineTries tries = affine_tries(x, w, range, inverse, low, high, sweep);
    const int count = std::min(4, sweep.steps + 1 - step);
    int k = 0;
    while (k < count && !(tries.error[k] < best)) ++k;
    step += k == count ? count : k + 1;
    if (k == count) continue;
    best = tries.error[k];
    codes_inverse = inverse[k];
    codes_low = low;
    bounded = sweep.bounded;
    scale = tries.scale[k];
    low = tries.low[k];
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(affine_levels(splat(codes_inverse * (x[i] - codes_low)),
                                                       static_cast<float>(high), bounded)[0]);
  return {scale, -low};
}

namespace {

// The inverse of the nine scales (0.1 t + high) / top that has the least weighted error.
float positive_inverse(std::span<const float> x, std::span<const float> w, int high, float top) {
  const float first = static_cast<float>(high) / top;
  float inverse = first, best = 0;
  for (int i = -5; i <= 4; ++i) {
    if (i == 0) continue;
    const bool start = i == -5;
    const float tried =
        start ? first : (0.1f * static_cast<float>(i) + static_cast<float>(high)) / top;
    const float scale = 1 / tried;
    float error = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      int level = nearest_int(tried * x[k]);
      level = start ? static_cast<std::uint8_t>(level) : std::min(high, level);
      const float difference = x[k] - scale * static_cast<float>(level);
      error += w[k] * difference * difference;
    }
    if (start) best = error;
    if (!(error < best)) continue;
    best = error;
    inverse = tried;
  }
  return inverse;
}

}  // namespace

float positive_scale(std::span<const float> x, std::span<const float> w, int high,
                     std::span<std::uint8_t> codes) {
  float top = 0;
  for (const float value : x) top = top > value ? top : value;
  if (top < kZeroGroup) {
    std::ranges::fill(codes, std::uint8_t{0});
    return 0.0f;
  }
  const float inverse = positive_inverse(x, w, high, top);
  Fit fit;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int level = std::min(high, nearest_int(inverse * x[i]));
    codes[i] = static_cast<std::uint8_t>(level);
    fit.add(w[i], x[i], level);
  }
  for (int pass = 0; pass < 5; ++pass) {
    bool changed = false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto level = static_cast<float>(codes[i]);
      Fit moved{fit.xl - w[i] * x[i] * level, fit.l2 - w[i] * level * level};
      if (!(moved.xl > 0 && moved.l2 > 0)) continue;
      const int tried = std::min(high, nearest_int(x[i] * moved.l2 / moved.xl));
      if (tried == codes[i]) continue;
      moved.add(w[i], x[i], tried);
      if (!(moved.xl * moved.xl * fit.l2 > fit.xl * fit.xl * moved.l2)) continue;
      codes[i] = static_cast<std::uint8_t>(tried);
      fit = moved;
      changed = true;
    }
    if (!changed) break;
  }
  return fit.l2 > 0.0f ? fit.xl / fit.l2 : 0.0f;
}

}  // namespace packstone::gguf
