#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "packstone/format/e2m1.h"
#include "packstone/format/fp8_kinds.h"
#include "packstone/quantize/folder/encoder.h"

namespace packstone::folder {
namespace {

constexpr float kFp4Max = 6.0f, kFp8Max = 448.0f;
constexpr Fp8Kind kE4M3 = Fp8Kind::kE4M3FN;

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// The code of 4 bits nearest to t. Ties: MLX takes the smaller magnitude, and +0 for what rounds to
// zero; elsewhere the even code.
std::uint32_t fp4_code(float t, bool mlx) {
  constexpr float kMiddle[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = std::abs(t);
  std::uint32_t code = 0;
  for (std::uint32_t i = 0; i < 7; ++i)
    code += magnitude > kMiddle[i] || (!mlx && i % 2 == 1 && magnitude == kMiddle[i]);
  return code | (std::signbit(t) && (code != 0 || !mlx) ? 8u : 0u);
}

struct Codes {
  bool four;  // bits; else eight
  std::uint32_t code(float t) const { return four ? fp4_code(t, true) : float_to_fp8(kE4M3, t); }
  float level(std::uint32_t code) const {
    return four ? E2M1Scheme::level(code, 0) : fp8_to_float(kE4M3, code);
  }
};

// Codes of a group for a scale; returns the error.
double group_codes(std::span<const float> x, const float* weight, const Codes& rule, float scale,
                   std::span<std::uint8_t> codes) {
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(rule.code(x[i] / scale));
    const double difference = static_cast<double>(x[i]) - scale * rule.level(codes[i]);
    error += (weight == nullptr ? 1.0 : weight[i]) * (difference * difference);
  }
  return error;
}

constexpr std::size_t kGroupMax = 32;

// `weight` of each error; null: all alike.
void encode_mx_group(std::span<const float> x, const float* weight, const Codes& rule, bool best,
                     std::span<std::uint8_t> codes, RawParams& raw) {
  const float largest = largest_of(x);
  const std::uint32_t parity =
      largest == 0 ? 127u : power_code(largest / (rule.four ? kFp4Max : kFp8Max));
  raw.pattern[0] = parity;
  double least = group_codes(x, weight, rule, e8m0_to_float(parity), codes);
  if (!best || largest == 0) return;
  std::uint8_t tried[kGroupMax];
  for (const int by : {-1, -2, 1}) {
    const std::int64_t pattern = static_cast<std::int64_t>(parity) + by;
    if (pattern < 0 || pattern > 254) continue;
    const auto code = static_cast<std::uint32_t>(pattern);
    const double found = group_codes(x, weight, rule, e8m0_to_float(code), {tried, x.size()});
    if (!(found < least)) continue;
    least = found;
    raw.pattern[0] = code;
    std::copy_n(tried, x.size(), codes.begin());
  }
}

// A tensor's number and how a group's scale is made of it.
struct Nvfp4Rule {
  bool mlx = false, divides = false;
  float global = 1;
  float step(std::uint32_t scale) const {
    const float number = fp8_to_float(kE4M3, scale);
    return mlx ? number : divides ? number / global : number * global;
  }
  // The scale that the largest value of a group asks for, before it is rounded.
  float wanted(float largest) const {
    const float sixth = largest / kFp4Max;
    return mlx ? sixth : divides ? sixth * global : sixth / global;
  }
};

double nvfp4_codes(std::span<const float> x, const float* weight, const Nvfp4Rule& rule,
                   std::uint32_t scale, std::span<std::uint8_t> codes) {
  const float step = rule.step(scale);
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float t = step == 0 ? 0.0f : x[i] / step;
    codes[i] = static_cast<std::uint8_t>(fp4_code(t, rule.mlx));
    const double difference = static_cast<double>(x[i]) - step * E2M1Scheme::level(codes[i], 0);
    error += (weight == nullptr ? 1.0 : weight[i]) * (difference * difference);
  }
  return error;
}

// Scales of an octave have eight codes: parity's and those from a little above to an octave below.
void encode_nvfp4_group(std::span<const float> x, const float* weight, const Nvfp4Rule& rule,
                        bool best, std::span<std::uint8_t> codes, RawParams& raw) {
  constexpr std::int64_t kBelow = 8, kAbove = 3, kLast = 0x7E;
  const std::int64_t parity = float_to_fp8(kE4M3, rule.wanted(largest_of(x)));
  raw.pattern[0] = static_cast<std::uint32_t>(parity);
  raw.pattern[1] = std::bit_cast<std::uint32_t>(rule.global);
  double least = nvfp4_codes(x, weight, rule, raw.pattern[0], codes);
  if (!best || least == 0) return;
  std::uint8_t tried[kGroupMax];
  for (std::int64_t at = std::max<std::int64_t>(parity - kBelow, 0);
       at <= std::min(parity + kAbove, kLast); ++at) {
    if (at == parity) continue;
    const auto scale = static_cast<std::uint32_t>(at);
    const double found = nvfp4_codes(x, weight, rule, scale, {tried, x.size()});
    if (!(found < least)) continue;
    least = found;
    raw.pattern[0] = scale;
    std::copy_n(tried, x.size(), codes.begin());
  }
}

template <class Group>
void each_group(const Work& work, Group&& group_of) {
  auto rows = [&](std::int64_t begin, std::int64_t end, int) {
    const auto width = static_cast<std::size_t>(work.group);
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t g = 0; g < work.groups; ++g)
        group_of(
            std::span<const float>(work.weight.row(row) + g * work.group, width),
            std::span<std::uint8_t>(work.codes + row * work.weight.cols + g * work.group, width),
            work.raw[row * work.groups + g]);
  };
  work.pool->parallel(work.weight.rows, 4, rows);
}

// The tensor's number: the group of its largest value has the largest scale.
Nvfp4Rule nvfp4_rule(FormatId id, float largest) {
  const std::string_view layout = format_info(id).layout;
  Nvfp4Rule rule{layout == "mlx-nvfp4", layout == "ct-nvfp4", 1};
  constexpr float kMost = kFp4Max * kFp8Max, kFloatMax = std::numeric_limits<float>::max();
  if (rule.mlx || largest == 0) return rule;
  rule.global = rule.divides ? std::min(kMost / largest, kFloatMax)
                             : std::max(largest / kMost, std::numeric_limits<float>::denorm_min());
  return rule;
}

}  // namespace

void fit_mxfp8_group(std::span<const float> x, std::span<const float> weight, RawParams& raw) {
  std::uint8_t codes[kGroupMax];
  const bool any = std::ranges::any_of(weight, [](float w) { return w > 0; });
  encode_mx_group(x, any ? weight.data() : nullptr, Codes{false}, true, {codes, x.size()}, raw);
}

void encode_mx(const Work& work) {
  const Codes rule{format_info(work.id).code_bits == 4};
  each_group(work, [&](auto x, auto codes, RawParams& raw) {
    encode_mx_group(x, nullptr, rule, work.best, codes, raw);
  });
}

void fit_nvfp4_group(FormatId id, float largest, std::span<const float> x,
                     std::span<const float> weight, RawParams& raw) {
  std::uint8_t codes[kGroupMax];
  const bool any = std::ranges::any_of(weight, [](float w) { return w > 0; });
  encode_nvfp4_group(x, any ? weight.data() : nullptr, nvfp4_rule(id, largest), true,
                     {codes, x.size()}, raw);
}

void encode_nvfp4(const Work& work) {
  float largest = 0;
  for (std::int64_t row = 0; row < work.weight.rows; ++row)
    largest = std::max(
        largest, largest_of({work.weight.row(row), static_cast<std::size_t>(work.weight.cols)}));
  const Nvfp4Rule rule = nvfp4_rule(work.id, largest);
  each_group(work, [&](auto x, auto codes, RawParams& raw) {
    encode_nvfp4_group(x, nullptr, rule, work.best, codes, raw);
  });
}

}  // namespace packstone::folder
