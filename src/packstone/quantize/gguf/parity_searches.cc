#include "packstone/quantize/gguf/parity_searches.h"

#include <algorithm>
#include <cmath>

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

Fit symmetric_fit(std::span<const float> x, std::span<const float> w, int half, float inverse) {
  Fit fit;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int level = std::clamp(nearest_int(inverse * x[i]), -half, half - 1);
    fit.add(w.empty() ? x[i] * x[i] : w[i], x[i], level);
  }
  return fit;
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
  float inverse = static_cast<float>(-half) / edge;
  Fit fit = symmetric_fit(x, w, half, inverse);
  float scale = fit.l2 != 0 ? fit.xl / fit.l2 : 0.0f;
  float best = scale * fit.xl;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const float tried = -(static_cast<float>(half) + 0.1f * static_cast<float>(step)) / edge;
    fit = symmetric_fit(x, w, half, tried);
    if (!(fit.l2 > 0 && fit.xl * fit.xl > best * fit.l2)) continue;
    inverse = tried;
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

float affine_error(std::span<const float> x, std::span<const float> w, float scale, float low,
                   bool absolute, std::span<const std::uint8_t> codes) {
  float error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float difference = scale * static_cast<float>(codes[i]) + low - x[i];
    error += w[i] * (absolute ? std::abs(difference) : difference * difference);
  }
  return error;
}

std::uint8_t affine_code(float position, int high, bool bounded) {
  if (!bounded) return static_cast<std::uint8_t>(std::clamp(nearest_int(position), 0, high));
  const auto limit = static_cast<float>(high);
  return position > 0 ? static_cast<std::uint8_t>(nearest_int(position < limit ? position : limit))
                      : std::uint8_t{0};
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
  float inverse = static_cast<float>(high) / (top - low);
  float scale = 1 / inverse;
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = affine_code(inverse * (x[i] - low), high, false);
  float best = affine_error(x, w, scale, low, sweep.absolute, codes);
  std::uint8_t tried[32];
  for (int step = 0; step <= sweep.steps; ++step) {
    inverse = (sweep.first + sweep.delta * static_cast<float>(step) + static_cast<float>(high)) /
              (top - low);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      tried[i] = affine_code(inverse * (x[i] - low), high, sweep.bounded);
      const auto level = static_cast<float>(tried[i]);
      sum_l += w[i] * level;
      sum_l2 += w[i] * level * level;
      sum_xl += w[i] * level * x[i];
    }
    const float determinant = range.sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (range.sum_w * sum_xl - range.sum_x * sum_l) / determinant;
    float this_low = (sum_l2 * range.sum_x - sum_l * sum_xl) / determinant;
    if (this_low > 0) {
      this_low = 0;
      this_scale = sum_xl / sum_l2;
    }
    const std::span<const std::uint8_t> levels(tried, x.size());
    const float error = affine_error(x, w, this_scale, this_low, sweep.absolute, levels);
    if (!(error < best)) continue;
    std::ranges::copy(levels, codes.begin());
    best = error;
    scale = this_scale;
    low = this_low;
  }
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
