#include "packstone/quantize/fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "packstone/quantize/clones.h"

// Vectors are passed between functions that are always inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace packstone {
namespace {

constexpr int kLanes = 8;
using Lanes = float __attribute__((vector_size(32), aligned(4), may_alias));
using Mask = std::int32_t __attribute__((vector_size(32)));

// Half to even, for magnitudes below 2^22.
PACKSTONE_ALWAYS_INLINE Lanes round_lanes(Lanes x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

PACKSTONE_ALWAYS_INLINE Lanes clamp_lanes(Lanes x, float low, float high) {
  const Lanes lo = Lanes{} + low, hi = Lanes{} + high;
  x = x > lo ? x : lo;  // NaN becomes low
  return x < hi ? x : hi;
}

PACKSTONE_ALWAYS_INLINE float sum_lanes(Lanes v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

PACKSTONE_ALWAYS_INLINE Lanes load(const float* x) {
  return *reinterpret_cast<const Lanes*>(x);
}

// The nearest number of 11 significant bits, half to even; magnitudes that are normal halves.
PACKSTONE_ALWAYS_INLINE float round_to_eleven_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

PACKSTONE_ALWAYS_INLINE float round_stored(FitRounding rounding, float value) {
  constexpr float kHalfMax = 65504.0f, kHalfNormal = 6.103515625e-5f;
  switch (rounding) {
    case FitRounding::kF16: {
      const float magnitude = std::abs(value);
      if (magnitude >= kHalfNormal && magnitude < kHalfMax) return round_to_eleven_bits(value);
      return half_to_float(float_to_half(std::clamp(value, -kHalfMax, kHalfMax)));
    }
    case FitRounding::kBF16: {
      const float rounded = bfloat16_to_float(float_to_bfloat16(value));
      return std::isfinite(rounded) ? rounded : bfloat16_to_float(value < 0 ? 0xFF7F : 0x7F7F);
    }
    case FitRounding::kFree:
    case FitRounding::kF32:
      break;
  }
  return value;
}

// Sums over a group with levels rounded under one scale and offset.
struct Pass {
  float error, level, level2, product;  // sums of w e^2, w l, w l^2, w x l
};

PACKSTONE_ALWAYS_INLINE Pass linear_pass(const FitData& data, float code_max, float scale,
                                         float offset, float center) {
  const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
  Lanes error{}, level{}, level2{}, product{};
  for (int i = 0; i < data.count; i += kLanes) {
    const Lanes x = load(data.x + i), w = load(data.weight + i);
    const Lanes position = clamp_lanes((x - offset) * inverse + center, 0.0f, code_max);
    const Lanes l = round_lanes(position) - center;
    const Lanes e = (l * scale + offset) - x;
    const Lanes wl = w * l;
    error += w * e * e;
    level += wl;
    level2 += wl * l;
    product += wl * x;
  }
  return {sum_lanes(error), sum_lanes(level), sum_lanes(level2), sum_lanes(product)};
}

// The level nearest to x / scale is the first plus all the steps whose middle lies below.
PACKSTONE_ALWAYS_INLINE Pass table_pass(const FitData& data, const TableRules& rules, float scale) {
  const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
  float middle[kTableLevelsMax] = {};
  for (int k = 0; k + 1 < rules.count; ++k)
    middle[k] = 0.5f * (rules.level[k] + rules.level[k + 1]);
  Lanes error{}, level2{}, product{};
  for (int i = 0; i < data.count; i += kLanes) {
    const Lanes x = load(data.x + i), w = load(data.weight + i);
    const Lanes t = x * inverse;
    Lanes l = Lanes{} + rules.level[0];
    for (int k = 0; k + 1 < rules.count; ++k)
      l = t > Lanes{} + middle[k] ? Lanes{} + rules.level[k + 1] : l;
    const Lanes e = l * scale - x;
    const Lanes wl = w * l;
    error += w * e * e;
    level2 += wl * l;
    product += wl * x;
  }
  return {sum_lanes(error), 0, sum_lanes(level2), sum_lanes(product)};
}

struct Moments {
  float weight = 0, value = 0;  // sums of w and w x
};

PACKSTONE_ALWAYS_INLINE Moments moments(const FitData& data) {
  Lanes weight{}, value{};
  for (int i = 0; i < data.count; i += kLanes) {
    const Lanes w = load(data.weight + i);
    weight += w;
    value += w * load(data.x + i);
  }
  return {sum_lanes(weight), sum_lanes(value)};
}

PACKSTONE_ALWAYS_INLINE bool take(GroupFit& best, float scale, float offset, float center,
                                  const Pass& pass) {
  if (!(pass.error < best.error)) return false;
  best = {scale, offset, center, pass.error, pass.level2};
  return true;
}

// Least squares for scale and offset with the levels of a pass.
PACKSTONE_ALWAYS_INLINE bool solve(const Pass& pass, const Moments& sums, const LinearRules& rules,
                                   float& scale, float& offset) {
  if (rules.has_offset) {
    const float det = sums.weight * pass.level2 - pass.level * pass.level;
    if (!(det > 0)) return false;
    scale = (sums.weight * pass.product - sums.value * pass.level) / det;
    offset = (pass.level2 * sums.value - pass.level * pass.product) / det;
    if (rules.offset_not_positive && offset > 0) offset = 0, scale = pass.product / pass.level2;
  } else {
    if (!(pass.level2 > 0)) return false;
    scale = pass.product / pass.level2;
  }
  return std::isfinite(scale) && std::isfinite(offset) && (rules.negative_scales || scale > 0);
}

// From one start: round, solve, round again, while the error falls.
PACKSTONE_ALWAYS_INLINE void descend_linear(const FitData& data, const LinearRules& rules,
                                            const Moments& sums, float scale, float offset,
                                            float center, GroupFit& best) {
  constexpr int kPasses = 3;
  for (int i = 0; i < kPasses; ++i) {
    scale = round_stored(rules.scale, scale);
    if (rules.has_offset) offset = round_stored(rules.offset, offset);
    const Pass pass = linear_pass(data, rules.code_max, scale, offset, center);
    if (!take(best, scale, offset, center, pass) && i > 0) return;
    if (i + 1 == kPasses || !solve(pass, sums, rules, scale, offset)) return;
  }
}

// Starts of the search: the step is the range over code_max + d for these d, in parts of the
// code range where it is short.
constexpr int kStarts = 19;
PACKSTONE_ALWAYS_INLINE float start_codes(float codes, int start) {
  const float spread = codes < 6.0f ? 0.6f * codes / 9.0f : 0.1f;
  return codes + spread * static_cast<float>(start - kStarts / 2);
}

PACKSTONE_CLONES
void fit_affine(const FitData& data, const LinearRules& rules, GroupFit& best) {
  const Moments sums = moments(data);
  const float low = rules.offset_not_positive ? std::min(data.low, 0.0f) : data.low;
  const float range = std::max(data.high, low) - low;
  if (!(range > 0)) {
    descend_linear(data, rules, sums, 0.0f, low, 0.0f, best);
    return;
  }
  for (int start = 0; start < kStarts; ++start) {
    const float codes = start_codes(rules.code_max, start);
    const float scale = range / codes;
    // A step below the full one clips both ends alike.
    const float offset = low + 0.5f * (range - scale * rules.code_max);
    descend_linear(data, rules, sums, scale,
                   rules.offset_not_positive ? std::min(offset, 0.0f) : offset, 0.0f, best);
  }
}

PACKSTONE_CLONES
void fit_with_zero(const FitData& data, const LinearRules& rules, GroupFit& best) {
  const Moments sums = moments(data);
  const float low = std::min(data.low, 0.0f), high = std::max(data.high, 0.0f);
  for (int start = 0; start < kStarts; ++start) {
    const float scale = (high - low) / start_codes(rules.code_max, start);
    const float zero = std::rint(-low / scale);
    for (float center = zero - 1; center <= zero + 1; center += 1)
      if (center >= 0 && center <= rules.center_max)
        descend_linear(data, rules, sums, scale, kNoOffset, center, best);
  }
}

PACKSTONE_CLONES
void fit_symmetric(const FitData& data, const LinearRules& rules, GroupFit& best) {
  const Moments sums = moments(data);
  const float below = rules.center, above = rules.code_max - rules.center;
  for (int sign = 1; sign >= (rules.negative_scales ? -1 : 1); sign -= 2) {
    const float high = sign > 0 ? data.high : -data.low;
    const float low = sign > 0 ? data.low : -data.high;
    // The step that holds both ends.
    const float full = std::max(above > 0 ? high / above : 0, below > 0 ? -low / below : 0);
    if (!(full > 0)) continue;
    for (int start = 0; start < kStarts; ++start) {
      const float scale = full * rules.code_max / start_codes(rules.code_max, start);
      descend_linear(data, rules, sums, static_cast<float>(sign) * scale, kNoOffset, rules.center,
                     best);
    }
  }
}

PACKSTONE_CLONES
void fit_table_from(const FitData& data, const TableRules& rules, float full, GroupFit& best) {
  for (int start = 0; start < kStarts; ++start) {
    float scale = full * (0.62f + 0.03f * static_cast<float>(start));
    for (int i = 0; i < 2; ++i) {
      scale = round_stored(rules.scale, scale);
      const Pass pass = table_pass(data, rules, scale);
      if (!take(best, scale, kNoOffset, 0, pass) && i > 0) break;
      if (!(pass.level2 > 0)) break;
      scale = pass.product / pass.level2;
    }
  }
}

constexpr GroupFit nothing_yet() {
  GroupFit fit;
  fit.error = std::numeric_limits<float>::infinity();
  return fit;
}

}  // namespace

float fit_round(FitRounding rounding, float value) {
  return round_stored(rounding, value);
}

GroupFit fit_linear(const FitData& data, const LinearRules& rules) {
  GroupFit best = nothing_yet();
  if (rules.has_offset)
    fit_affine(data, rules, best);
  else if (data.low == 0 && data.high == 0)
    best = {0, kNoOffset, rules.chooses_center ? 0 : rules.center, 0, 0};
  else if (rules.chooses_center)
    fit_with_zero(data, rules, best);
  else
    fit_symmetric(data, rules, best);
  return best;
}

GroupFit fit_table(const FitData& data, const TableRules& rules) {
  GroupFit best = nothing_yet();
  const float least = rules.level[0], most = rules.level[rules.count - 1];
  for (int sign = 1; sign >= (rules.negative_scales ? -1 : 1); sign -= 2) {
    const float high = sign > 0 ? data.high : -data.low;
    const float low = sign > 0 ? data.low : -data.high;
    const float full = std::max(most > 0 ? high / most : 0, least < 0 ? low / least : 0);
    if (full > 0) fit_table_from(data, rules, static_cast<float>(sign) * full, best);
  }
  if (!std::isfinite(best.error)) best = {0, kNoOffset, 0, 0, 0};
  return best;
}

PACKSTONE_CLONES
float linear_error(const FitData& data, const LinearRules& rules, float scale, float offset,
                   float center) {
  return linear_pass(data, rules.code_max, scale, offset, center).error;
}

PACKSTONE_CLONES
float table_error(const FitData& data, const TableRules& rules, float scale) {
  return table_pass(data, rules, scale).error;
}

}  // namespace packstone
