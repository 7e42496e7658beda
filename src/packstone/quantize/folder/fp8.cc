#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "packstone/format/e2m1.h"
#include "packstone/format/fp8_kinds.h"
#include "packstone/quantize/clones.h"
#include "packstone/quantize/folder/encoder.h"

namespace packstone::folder {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();

// How the stored number of a block becomes the factor of its values, and back.
enum class Rule { kDivisor, kReciprocal, kQuotient, kPower };

struct Kind {
  Fp8Kind fp8;
  Rule rule;
  FloatType type;  // of the scales
  float most;      // the largest finite level
};

// Blocks are of Hugging Face, rows and whole tensors of e4m3fn of compressed-tensors.
Kind kind_of(const Work& work) {
  const std::string_view layout = format_info(work.id).layout;
  const auto has = [&](std::string_view word) {
    return layout.find(word) != std::string_view::npos;
  };
  Kind kind{};
  kind.fp8 = has("e5m2fnuz")   ? Fp8Kind::kE5M2FNUZ
             : has("e4m3fnuz") ? Fp8Kind::kE4M3FNUZ
             : has("e5m2")     ? Fp8Kind::kE5M2
                               : Fp8Kind::kE4M3FN;
  const bool quotient = kind.fp8 == Fp8Kind::kE4M3FN && work.group == work.weight.cols;
  kind.rule = has("divisor") ? Rule::kDivisor
              : has("e8m0")  ? Rule::kPower
              : quotient     ? Rule::kQuotient
                             : Rule::kReciprocal;
  kind.type = work.params.metadata;
  kind.most = fp8_to_float(kind.fp8, fp8_largest_code(kind.fp8));
  return kind;
}

// A block's scale: what is stored, what a value is multiplied by (divided by, with `divide`) to be
// rounded, and what decodes a level.
struct Scale {
  std::uint32_t pattern = 0;
  float number = 1;     // that the file has
  float encode = 1;     // codes are of value * encode
  bool divide = false;  // codes are of value / number
};

Scale scale_of_number(const Kind& kind, float number) {
  Scale scale;
  if (kind.rule == Rule::kPower) {
    scale.pattern = power_code(number);
    scale.number = e8m0_to_float(scale.pattern);
  } else {
    scale.pattern = encode_float(kind.type, number);
    scale.number = decode_float(kind.type, scale.pattern);
    if (scale.number == 0) {  // the smallest number above zero
      scale.pattern = 1;
      scale.number = decode_float(kind.type, 1);
    }
  }
  scale.divide = kind.rule != Rule::kDivisor;
  scale.encode = scale.number;
  return scale;
}

Scale parity_scale(const Kind& kind, float largest) {
  if (largest == 0) return scale_of_number(kind, 1.0f);
  const float multiplier = std::min(kind.most / std::max(largest, 0x1p-126f), kFloatMax);
  if (kind.rule == Rule::kDivisor) {
    float number = multiplier;
    while (std::isinf(kind.most / number)) number = std::nextafter(number, kFloatMax);
    return scale_of_number(kind, number);
  }
  if (kind.rule != Rule::kReciprocal) return scale_of_number(kind, largest / kind.most);
  Scale scale = scale_of_number(kind, 1.0f / multiplier);
  scale.encode = multiplier;
  scale.divide = false;
  return scale;
}

// Where a block lies.
struct Block {
  std::int64_t row, rows, col, cols;
};
Block block_at(const Work& work, std::int64_t index) {
  const std::int64_t high = work.params.group_rows;
  const std::int64_t row = index / work.groups * high, col = index % work.groups * work.group;
  return {row, std::min(high, work.weight.rows - row), col,
          std::min(work.group, work.weight.cols - col)};
}

float largest_of(const Work& work, const Block& block) {
  float largest = 0;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const float* x = work.weight.row(block.row + r) + block.col;
    for (std::int64_t c = 0; c < block.cols; ++c) largest = std::max(largest, std::abs(x[c]));
  }
  return largest;
}

struct Sums {
  double error = 0, product = 0, square = 0;  // sums of (x - decoded)^2, x level, level^2
};

// Sums of a row of a block. The level nearest to x / step, without its code: the bits below the
// mantissa's are rounded off, or, below the smallest normal number, a sum that has no place for
// them. `inverse` rounds, so that a tie may fall to either side; its error is the same.
PACKSTONE_CLONES
void add_row(const float* x, std::int64_t count, const Kind& kind, float inverse, float number,
             Sums& sums) {
  constexpr int kLanes = 8;
  const int drop = 23 - fp8_mantissa_bits(kind.fp8);
  const int bias = (drop == 20 ? 7 : 15) + (is_fnuz(kind.fp8) ? 1 : 0);
  const std::uint32_t half = (1u << (drop - 1)) - 1u, mask = ~((1u << drop) - 1u);
  const float normal = std::bit_cast<float>(static_cast<std::uint32_t>(128 - bias) << 23);
  const float shift = std::bit_cast<float>(static_cast<std::uint32_t>(128 - bias + drop) << 23);
  const bool divides = kind.rule == Rule::kDivisor;
  double error[kLanes] = {}, product[kLanes] = {}, square[kLanes] = {};
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const int lanes = static_cast<int>(std::min<std::int64_t>(kLanes, count - i));
    for (int k = 0; k < lanes; ++k) {
      const float value = std::abs(x[i + k]);
      const float t = std::min(value * inverse, kind.most);
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(t);
      const float large = std::bit_cast<float>((bits + half + (bits >> drop & 1u)) & mask);
      const float small = (t + shift) - shift;
      const float level = t < normal ? small : large;
      const float decoded = divides ? level / number : level * number;
      const double difference = static_cast<double>(value) - decoded;
      error[k] += difference * difference;
      product[k] += static_cast<double>(value) * level;
      square[k] += static_cast<double>(level) * level;
    }
  }
  for (int k = 0; k < kLanes; ++k) {
    sums.error += error[k];
    sums.product += product[k];
    sums.square += square[k];
  }
}

Sums sums_of(const Work& work, const Kind& kind, const Block& block, const Scale& scale) {
  Sums sums;
  const float inverse = scale.divide ? 1.0f / scale.number : scale.encode;
  if (!std::isfinite(inverse) || !std::isfinite(scale.number)) {
    sums.error = std::numeric_limits<double>::infinity();
    return sums;
  }
  for (std::int64_t r = 0; r < block.rows; ++r)
    add_row(work.weight.row(block.row + r) + block.col, block.cols, kind, inverse, scale.number,
            sums);
  return sums;
}

// The scale that decodes the levels of `sums` best.
float solved_number(const Kind& kind, const Sums& sums) {
  if (!(sums.product > 0) || !(sums.square > 0)) return 0;
  return static_cast<float>(kind.rule == Rule::kDivisor ? sums.square / sums.product
                                                        : sums.product / sums.square);
}

// Scales of a search as shares of parity's step: those of one octave, after which the levels
// repeat, and a little less than the largest value needs.
constexpr float kSteps[] = {1.0f,     1.03125f, 1.0625f, 1.09375f, 1.125f,  1.15625f, 1.1875f,
                            1.21875f, 1.25f,    1.3125f, 1.375f,   1.4375f, 1.5f,     1.5625f,
                            1.625f,   1.75f,    1.875f,  0.96875f, 0.9375f, 0.875f};
constexpr float kPowerSteps[] = {1.0f, 2.0f, 0.5f, 0.25f};

std::span<const float> steps_of(const Kind& kind) {
  return kind.rule == Rule::kPower ? std::span<const float>(kPowerSteps) : kSteps;
}

Scale stepped(const Kind& kind, const Scale& parity, float step) {
  if (step == 1.0f) return parity;
  return scale_of_number(kind,
                         kind.rule == Rule::kDivisor ? parity.number / step : parity.number * step);
}

// Of every block the scale with the least error. Blocks and steps are worked off together: a
// tensor is one block.
void search(const Work& work, const Kind& kind, std::vector<Scale>& scales) {
  constexpr int kRounds = 3;
  const std::span<const float> steps = steps_of(kind);
  const auto count = static_cast<std::int64_t>(steps.size());
  const auto blocks = static_cast<std::int64_t>(scales.size());
  std::vector<double> errors(scales.size() * steps.size());
  auto try_steps = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      errors[static_cast<std::size_t>(i)] =
          sums_of(work, kind, block_at(work, i / count),
                  stepped(kind, scales[static_cast<std::size_t>(i / count)],
                          steps[static_cast<std::size_t>(i % count)]))
              .error;
  };
  work.pool->parallel(blocks * count, blocks > 64 ? 16 : 1, try_steps);
  auto choose = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      Scale& scale = scales[static_cast<std::size_t>(i)];
      const double* error = errors.data() + i * count;
      const auto least = std::min_element(error, error + count) - error;
      scale = stepped(kind, scale, steps[static_cast<std::size_t>(least)]);
      if (kind.rule == Rule::kPower) continue;
      const Block block = block_at(work, i);
      Sums sums = sums_of(work, kind, block, scale);
      for (int round = 0; round < kRounds; ++round) {
        const float number = solved_number(kind, sums);
        if (!(number > 0) || !std::isfinite(number)) break;
        const Scale next = scale_of_number(kind, number);
        const Sums after = sums_of(work, kind, block, next);
        if (!(after.error < sums.error)) break;
        scale = next;
        sums = after;
      }
    }
  };
  work.pool->parallel(blocks, 16, choose);
}

void write_row(const Work& work, const Kind& kind, const std::vector<Scale>& scales,
               std::int64_t row) {
  const float* x = work.weight.row(row);
  std::uint8_t* codes = work.codes + row * work.weight.cols;
  for (std::int64_t g = 0; g < work.groups; ++g) {
    const Scale& scale =
        scales[static_cast<std::size_t>(row / work.params.group_rows * work.groups + g)];
    work.raw[row * work.groups + g].pattern[0] = scale.pattern;
    const std::int64_t end = std::min((g + 1) * work.group, work.weight.cols);
    for (std::int64_t c = g * work.group; c < end; ++c)
      codes[c] = static_cast<std::uint8_t>(
          float_to_fp8(kind.fp8, scale.divide ? x[c] / scale.number : x[c] * scale.encode));
  }
}

}  // namespace

void encode_fp8(const Work& work) {
  const Kind kind = kind_of(work);
  std::vector<Scale> scales(
      static_cast<std::size_t>(ceil_div(work.weight.rows, work.params.group_rows) * work.groups));
  auto start = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      scales[static_cast<std::size_t>(i)] = parity_scale(kind, largest_of(work, block_at(work, i)));
  };
  work.pool->parallel(static_cast<std::int64_t>(scales.size()), 16, start);
  if (work.best) search(work, kind, scales);
  auto write = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) write_row(work, kind, scales, row);
  };
  work.pool->parallel(work.weight.rows, 16, write);
}

}  // namespace packstone::folder
