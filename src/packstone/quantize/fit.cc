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
  float weight = 0, value = 0, square = 0;  // sums of w, w x, w x^2
};

PACKSTONE_ALWAYS_INLINE Moments moments(const FitData& data) {
  Lanes weight{}, value{}, square{};
  for (int i = 0; i < data.count; i += kLanes) {
    const Lanes x = load(data.x + i), w = load(data.weight + i);
    weight += w;
    value += w * x;
    square += w * x * x;
  }
  return {sum_lanes(weight), sum_lanes(value), sum_lanes(square)};
}

PACKSTONE_ALWAYS_INLINE bool take(GroupFit& best, float scale, float offset, float center,
                                  const Pass& pass) {
  if (!(pass.error < best.error)) return false;
  best = {scale, offset, center, pass.error, pass.level2};
  return true;
}

struct Position {
  float scale, offset, center;
};

// Least squares for scale and offset with the levels of a pass, each rounded as it will be stored:
// the offset for the scale that is left of it.
PACKSTONE_ALWAYS_INLINE bool solve(const Pass& pass, const Moments& sums, const LinearRules& rules,
                                   Position& at) {
  if (rules.has_offset) {
    const float det = sums.weight * pass.level2 - pass.level * pass.level;
    if (!(det > 0)) return false;
    at.scale = (sums.weight * pass.product - sums.value * pass.level) / det;
    at.scale = round_stored(rules.scale, at.scale);
    at.offset = (sums.value - at.scale * pass.level) / sums.weight;
    if (rules.offset_not_positive && at.offset > 0) {
      at.offset = 0;
      at.scale = round_stored(rules.scale, pass.product / pass.level2);
    }
    at.offset = round_stored(rules.offset, at.offset);
  } else {
    if (!(pass.level2 > 0)) return false;
    at.scale = round_stored(rules.scale, pass.product / pass.level2);
  }
  return std::isfinite(at.scale) && std::isfinite(at.offset) &&
         (rules.negative_scales || at.scale > 0);
}

PACKSTONE_ALWAYS_INLINE Pass linear_pass(const FitData& data, const LinearRules& rules,
                                         const Position& at) {
  return linear_pass(data, rules.code_max, at.scale, at.offset, at.center);
}

// The levels of a start, and what scale and offset make of them; keeps the better.
PACKSTONE_ALWAYS_INLINE void try_start(const FitData& data, const LinearRules& rules,
                                       const Moments& sums, Position at, GroupFit& best) {
  if (!solve(linear_pass(data, rules, at), sums, rules, at)) return;
  take(best, at.scale, at.offset, at.center, linear_pass(data, rules, at));
}

// From the best: round, solve, round again, while the error falls.
PACKSTONE_ALWAYS_INLINE void descend(const FitData& data, const LinearRules& rules,
                                     const Moments& sums, GroupFit& best) {
  constexpr int kPasses = 8;
  if (!std::isfinite(best.error)) return;
  Position at{best.scale, best.offset, best.center};
  Pass pass = linear_pass(data, rules, at);
  for (int i = 0; i < kPasses; ++i) {
    if (!solve(pass, sums, rules, at)) return;
    pass = linear_pass(data, rules, at);
    if (!take(best, at.scale, at.offset, at.center, pass)) return;
  }
}

// The stored scales next to the best one, where their steps are coarse beside those of the codes.
PACKSTONE_ALWAYS_INLINE void try_neighbours(const FitData& data, const LinearRules& rules,
                                            const Moments& sums, GroupFit& best) {
  if (rules.scale == FitRounding::kFree || rules.scale == FitRounding::kF32) return;
  const float step = rules.scale == FitRounding::kF16 ? 0x1p-11f : 0x1p-8f;
  const Position from{best.scale, best.offset, best.center};
  for (const float factor : {1 - 2 * step, 1 - step, 1 + step, 1 + 2 * step}) {
    Position at = from;
    at.scale = round_stored(rules.scale, from.scale * factor);
    if (at.scale == from.scale) continue;
    Pass pass = linear_pass(data, rules, at);
    if (rules.has_offset && sums.weight > 0) {
      at.offset = (sums.value - at.scale * pass.level) / sums.weight;
      if (rules.offset_not_positive) at.offset = std::min(at.offset, 0.0f);
      at.offset = round_stored(rules.offset, at.offset);
      pass = linear_pass(data, rules, at);
    }
    take(best, at.scale, at.offset, at.center, pass);
  }
}

// The parts of a step by which a start cuts an end of the range off.
constexpr float kCuts[] = {-0.4f, 0.0f, 0.6f, 1.2f, 2.0f};
constexpr float kFewCuts[] = {-0.4f, 0.0f, 0.4f, 0.8f, 1.2f};  // with few codes

PACKSTONE_CLONES
void fit_affine(const FitData& data, const LinearRules& rules, GroupFit& best) {
  const Moments sums = moments(data);
  const float low = rules.offset_not_positive ? std::min(data.low, 0.0f) : data.low;
  const float range = std::max(data.high, low) - low;
  // All values alike: the offset.
  Position flat{0, sums.weight > 0 ? sums.value / sums.weight : low, 0};
  if (rules.offset_not_positive) flat.offset = std::min(flat.offset, 0.0f);
  flat.offset = round_stored(rules.offset, flat.offset);
  take(best, flat.scale, flat.offset, 0, linear_pass(data, rules, flat));
  if (!(range > 0)) return;
  const float step = range / rules.code_max;
  const auto& cuts = rules.code_max < 6 ? kFewCuts : kCuts;
  for (const float low_cut : cuts)
    for (const float high_cut : cuts) {
      const float scale = step * (1 - (low_cut + high_cut) / rules.code_max);
      try_start(data, rules, sums, {scale, low + low_cut * step, 0}, best);
    }
  descend(data, rules, sums, best);
  try_neighbours(data, rules, sums, best);
}

// Starts of a search for the scale alone: the range over code_max + d for these d, in parts of the
// code range where it is short, and multiples of the root mean square at the last code.
constexpr int kStarts = 19;
constexpr float kSpans[] = {1.1f, 1.5f, 2.0f, 2.5f, 3.0f};
PACKSTONE_ALWAYS_INLINE float start_codes(float codes, int start) {
  const float spread = codes < 6.0f ? 0.6f * codes / 9.0f : 0.1f;
  return codes + spread * static_cast<float>(start - kStarts / 2);
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
        try_start(data, rules, sums, {scale, kNoOffset, center}, best);
  }
  descend(data, rules, sums, best);
  try_neighbours(data, rules, sums, best);
}

PACKSTONE_CLONES
void fit_symmetric(const FitData& data, const LinearRules& rules, GroupFit& best) {
  const Moments sums = moments(data);
  const float below = rules.center, above = rules.code_max - rules.center;
  const float rms = sums.weight > 0 ? std::sqrt(sums.square / sums.weight) : 0.0f;
  GroupFit overall = best;
  for (int sign = 1; sign >= (rules.negative_scales ? -1 : 1); sign -= 2) {
    const float high = sign > 0 ? data.high : -data.low;
    const float low = sign > 0 ? data.low : -data.high;
    // The step that holds both ends.
    const float full = std::max(above > 0 ? high / above : 0, below > 0 ? -low / below : 0);
    if (!(full > 0)) continue;
    best.error = std::numeric_limits<float>::infinity();
    const auto start = [&](float scale) __attribute__((always_inline)) {
      try_start(data, rules, sums, {static_cast<float>(sign) * scale, kNoOffset, rules.center},
                best);
    };
    for (int i = 0; i < kStarts; ++i) start(full * rules.code_max / start_codes(rules.code_max, i));
    for (const float span : kSpans) start(span * rms / std::max(above, below));
    descend(data, rules, sums, best);
    try_neighbours(data, rules, sums, best);
    if (best.error < overall.error) overall = best;
  }
  best = overall;
}

PACKSTONE_CLONES
void fit_table_from(const FitData& data, const TableRules& rules, float full, GroupFit& best) {
  GroupFit here = best;
  here.error = std::numeric_limits<float>::infinity();
  const auto next = [&](const Pass& pass) __attribute__((always_inline)) {
    return round_stored(rules.scale, pass.product / pass.level2);
  };
  for (int start = 0; start < kStarts; ++start) {
    const Pass pass = table_pass(data, rules, full * (0.4f + 0.045f * static_cast<float>(start)));
    if (!(pass.level2 > 0)) continue;
    const float scale = next(pass);
    take(here, scale, kNoOffset, 0, table_pass(data, rules, scale));
  }
  for (int i = 0; i < 8 && std::isfinite(here.error); ++i) {
    const Pass pass = table_pass(data, rules, here.scale);
    if (!(pass.level2 > 0)) break;
    const float scale = next(pass);
    if (!take(here, scale, kNoOffset, 0, table_pass(data, rules, scale))) break;
  }
  if (here.error < best.error) best = here;
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
