#include "packstone/format/qqq.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "packstone/quantize/folder/encoder.h"
#include "packstone/quantize/folder/scale_fit.h"

namespace packstone::folder {
namespace {

constexpr float kHalfMax = 65504.0f;

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// 1 / scale, or the largest number where that is none.
float reciprocal(float scale) {
  return std::min(1.0f / scale, std::numeric_limits<float>::max());
}

// s_channel of a step of one code; the step itself is 16 times what is stored.
std::uint32_t stored_step(float step) {
  return std::bit_cast<std::uint32_t>(
      std::max(step / 16.0f, std::numeric_limits<float>::denorm_min()));
}

float step_of(std::uint32_t pattern) {
  return 16.0f * std::bit_cast<float>(pattern);
}

// Codes of a whole row, -7 to 7, and their error.
double row_codes(std::span<const float> x, float step, std::span<std::uint8_t> codes) {
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float level = std::rint(std::clamp(x[i] / step, -7.0f, 7.0f));
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(level) + 8);
    const double difference = static_cast<double>(x[i]) - step * level;
    error += difference * difference;
  }
  return error;
}

struct Buffers {
  PaddedGroup padded;
  std::vector<std::uint8_t> tried;
};

std::vector<Buffers> make_buffers(const Work& work, std::size_t count) {
  std::vector<Buffers> buffers(static_cast<std::size_t>(work.pool->size()));
  for (Buffers& one : buffers) {
    one.padded.reserve(count);
    one.tried.resize(count);
  }
  return buffers;
}

void encode_row(std::span<const float> x, bool best, Buffers& buffers,
                std::span<std::uint8_t> codes, RawParams& raw) {
  const float largest = largest_of(x);
  raw.pattern[0] = stored_step((largest == 0 ? 1.0f : largest) / 7.0f);
  double least = row_codes(x, step_of(raw.pattern[0]), codes);
  if (!best || largest == 0) return;
  LinearRules rules;
  rules.code_max = 14;
  rules.center = 7;
  rules.scale = FitRounding::kF32;
  const std::uint32_t pattern = stored_step(fit_linear(buffers.padded.view(x), rules).scale);
  const double found = row_codes(x, step_of(pattern), buffers.tried);
  if (!(found < least)) return;
  raw.pattern[0] = pattern;
  std::ranges::copy(buffers.tried, codes.begin());
}

// The ratio of a group's step and the row's, as stored; not beyond what the type has.
std::uint32_t stored_ratio(float ratio) {
  return float_to_half(std::min(ratio, kHalfMax));
}

// Parity's step of a group: a sixteenth of the symmetric range, which is half as wide where no
// value is below zero.
float parity_step(std::span<const float> x) {
  const auto [least, most] = std::ranges::minmax(x);
  float low = std::min(least, 0.0f), high = std::max(most, 0.0f);
  high = std::max(-low, high);
  if (low < 0) low = -high;
  if (low == 0 && high == 0) low = -1, high = 1;
  return (high - low) / 15.0f;
}

float decoded(std::uint32_t code, float ratio, float channel) {
  return QqqScheme::value({channel, kNoOffset, 8, ratio}, code);
}

// The nearest of the sixteen codes under a stored ratio; returns the error of the group.
double nearest_codes(std::span<const float> x, const float* weight, std::uint32_t pattern,
                     float channel, std::span<std::uint8_t> codes) {
  const float ratio = half_to_float(static_cast<std::uint16_t>(pattern));
  const float inverse = reciprocal(ratio) * reciprocal(channel);
  float level[16];
  for (std::uint32_t code = 0; code < 16; ++code) level[code] = decoded(code, ratio, channel);
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float position = std::clamp(x[i] * inverse + 8.0f, 0.0f, 15.0f);
    auto at = static_cast<std::size_t>(std::rint(position));
    const auto distance = [&](std::size_t k) { return std::abs(x[i] - level[k]); };
    if (at > 0 && distance(at - 1) < distance(at)) --at;
    if (at < 15 && distance(at + 1) < distance(at)) ++at;
    codes[i] = static_cast<std::uint8_t>(at);
    const double difference = static_cast<double>(x[i]) - level[at];
    error += (weight == nullptr ? 1.0 : weight[i]) * (difference * difference);
  }
  return error;
}

// Parity: codes of the step before it is rounded.
double parity_codes(std::span<const float> x, const float* weight, float step,
                    std::uint32_t pattern, float channel, std::span<std::uint8_t> codes) {
  const float ratio = half_to_float(static_cast<std::uint16_t>(pattern));
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float level =
        std::clamp(std::rint(std::clamp(x[i] / step, -16.0f, 16.0f)) + 8.0f, 0.0f, 15.0f);
    codes[i] = static_cast<std::uint8_t>(level);
    const double difference = static_cast<double>(x[i]) - decoded(codes[i], ratio, channel);
    error += (weight == nullptr ? 1.0 : weight[i]) * (difference * difference);
  }
  return error;
}

// Shares of the step that holds the largest value at the last code.
constexpr float kShares[] = {1.0f,  0.98f, 0.96f, 0.94f, 0.92f, 0.90f, 0.88f, 0.86f, 0.84f,
                             0.82f, 0.80f, 0.77f, 0.74f, 0.71f, 0.68f, 1.03f, 1.06f};

// `weight` of each error; null: all alike.
void encode_group(std::span<const float> x, const float* weight, float channel, bool best,
                  std::span<std::uint8_t> tried, std::span<std::uint8_t> codes, RawParams& raw) {
  raw.pattern[0] = std::bit_cast<std::uint32_t>(channel);
  const float step = parity_step(x);
  raw.pattern[1] = stored_ratio(step / channel);
  double least = parity_codes(x, weight, step, raw.pattern[1], channel, codes);
  const float largest = largest_of(x);
  if (!best || largest == 0) return;
  const auto attempt = [&](float ratio) {
    const std::uint32_t pattern = stored_ratio(ratio);
    if (pattern == 0) return;
    const double found = nearest_codes(x, weight, pattern, channel, tried);
    if (!(found < least)) return;
    least = found;
    raw.pattern[1] = pattern;
    std::ranges::copy(tried, codes.begin());
  };
  for (const float share : kShares) attempt(share * (largest / 7.5f) / channel);
  // The steps of the type around: bytes round, so that the error has many small valleys.
  const std::uint32_t at = raw.pattern[1];
  for (int step_by = -4; step_by <= 4; ++step_by) {
    const std::int64_t pattern = static_cast<std::int64_t>(at) + step_by;
    if (pattern > 0 && pattern < 0x7C00 && step_by != 0)
      attempt(half_to_float(static_cast<std::uint16_t>(pattern)));
  }
}

// The number of a row in groups.
float channel_of(std::span<const float> row) {
  const float largest = largest_of(row);
  return std::max((largest == 0 ? 1.0f : largest) / 127.0f,
                  std::numeric_limits<float>::denorm_min());
}

}  // namespace

void fit_qqq_row(std::span<const float> x, std::span<const float> weight, std::int64_t group,
                 std::span<RawParams> raw) {
  constexpr std::size_t kGroupMax = 128;
  std::uint8_t tried[kGroupMax], codes[kGroupMax];
  const auto width = static_cast<std::size_t>(group);
  const float channel = channel_of(x);
  for (std::size_t g = 0; g < raw.size(); ++g) {
    const auto part = x.subspan(g * width, width), weights = weight.subspan(g * width, width);
    const bool any = std::ranges::any_of(weights, [](float w) { return w > 0; });
    encode_group(part, any ? weights.data() : nullptr, channel, true, {tried, width},
                 {codes, width}, raw[g]);
  }
}

void encode_qqq(const Work& work) {
  const auto cols = static_cast<std::size_t>(work.weight.cols);
  std::vector<Buffers> buffers = make_buffers(work, cols);
  auto rows = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t row = begin; row < end; ++row)
      encode_row({work.weight.row(row), cols}, work.best, buffers[static_cast<std::size_t>(worker)],
                 {work.codes + row * work.weight.cols, cols}, work.raw[row]);
  };
  work.pool->parallel(work.weight.rows, 4, rows);
}

void encode_qqq_g128(const Work& work) {
  const auto group = static_cast<std::size_t>(work.group);
  std::vector<Buffers> buffers = make_buffers(work, group);
  auto rows = [&](std::int64_t begin, std::int64_t end, int worker) {
    Buffers& one = buffers[static_cast<std::size_t>(worker)];
    for (std::int64_t row = begin; row < end; ++row) {
      const std::span<const float> x(work.weight.row(row),
                                     static_cast<std::size_t>(work.weight.cols));
      const float channel = channel_of(x);
      for (std::int64_t g = 0; g < work.groups; ++g)
        encode_group(x.subspan(static_cast<std::size_t>(g) * group, group), nullptr, channel,
                     work.best, one.tried,
                     {work.codes + row * work.weight.cols + g * work.group, group},
                     work.raw[row * work.groups + g]);
    }
  };
  work.pool->parallel(work.weight.rows, 4, rows);
}

}  // namespace packstone::folder
