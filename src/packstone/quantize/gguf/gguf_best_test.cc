// Proves of the best mode: no block is worse than parity's under its weights, whatever the values,
// and the scales found are within a hair of the best of all stored scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "packstone/quantize/gguf/block_encoder.h"
#include "packstone/quantize/gguf/test_blocks.h"
#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

using gguf::encodable_formats;
using gguf::encode;

constexpr std::uint64_t kSeed = 20260807;
constexpr std::size_t kCols = 512;

struct Named {
  std::string name;
  std::vector<float> values;  // one row
};

std::vector<Named> kinds_of_rows() {
  std::vector<Named> rows{{"Gaussian", gguf::gaussian(kCols, kSeed)},
                          {"heavy tail", gguf::heavy_tailed(kCols, kSeed + 1)},
                          {"constant", std::vector<float>(kCols, 0.37f)},
                          {"negative constant", std::vector<float>(kCols, -1.7f)},
                          {"zero", std::vector<float>(kCols, 0.0f)},
                          {"one outlier", gguf::gaussian(kCols, kSeed + 2)},
                          {"one value", std::vector<float>(kCols, 0.0f)},
                          {"small", gguf::gaussian(kCols, kSeed + 3)},
                          {"subnormal", gguf::gaussian(kCols, kSeed + 4)},
                          {"ternary", std::vector<float>(kCols)},
                          {"positive", gguf::gaussian(kCols, kSeed + 5)},
                          {"ramp", std::vector<float>(kCols)},
                          {"large", gguf::gaussian(kCols, kSeed + 6)}};
  rows[5].values[40] = 9.0f;
  rows[6].values[300] = -2.5f;
  for (float& value : rows[7].values) value *= 1e-4f;
  for (float& value : rows[8].values) value *= 1e-38f;
  for (std::size_t i = 0; i < kCols; ++i) {
    rows[9].values[i] = 0.042f * static_cast<float>(static_cast<int>(i * 7 % 3) - 1);
    rows[10].values[i] = 0.1f + std::abs(rows[10].values[i]);
    rows[11].values[i] = static_cast<float>(i) - 200.5f;
    rows[12].values[i] *= 1e4f;
  }
  return rows;
}

std::vector<Named> kinds_of_importance() {
  std::vector<Named> kinds{{"none", {}},
                           {"lognormal", gguf::lognormal(kCols, kSeed + 7)},
                           {"zero", std::vector<float>(kCols, 0.0f)},
                           {"one column", std::vector<float>(kCols, 0.0f)},
                           {"extreme", gguf::lognormal(kCols, kSeed + 8)}};
  kinds[3].values[33] = 4.0f;
  for (std::size_t i = 0; i < kCols; ++i)
    kinds[4].values[i] *= i % 3 == 0 ? 1e30f : i % 3 == 1 ? 1e-38f : 0.0f;
  return kinds;
}

double mean_square(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return sum / static_cast<double>(x.size());
}

// sum w (x - decoded)^2 of each block, w as GgufEncodeOptions says.
std::vector<double> block_errors(const GgufEncoded& made, const std::vector<float>& x,
                                 const std::vector<float>& importance, bool magnitude) {
  const gguf::BlockEncoder& encoder = *gguf::find_block_encoder(made.weight.id());
  const auto block = static_cast<std::size_t>(encoder.block);
  std::vector<float> decoded(x.size());
  decode_row(made.weight, 0, decoded);
  std::vector<double> errors(x.size() / block);
  for (std::size_t begin = 0; begin < x.size(); begin += block) {
    float largest = 0;
    for (std::size_t i = begin; i < begin + block && !importance.empty(); ++i)
      largest = std::max(largest, importance[i]);
    const double sigma2 =
        mean_square(encoder.row_sigma ? std::span(x) : std::span(x).subspan(begin, block));
    for (std::size_t i = begin; i < begin + block; ++i) {
      double w = largest > 0 ? std::max(importance[i] / largest, 0x1p-20f) : 1.0f;
      if (magnitude) w *= std::sqrt(sigma2 + static_cast<double>(x[i]) * x[i]);
      const double difference = static_cast<double>(x[i]) - decoded[i];
      errors[begin / block] += w * (difference * difference);
    }
  }
  return errors;
}

// Compares every block of a row under one weighting; true where parity has an answer.
bool compare_blocks(FormatId id, const Named& row, const Named& importance,
                    GgufWeighting weighting) {
  const auto parity = encode(row.values, {1, kCols}, id,
                             {.mode = GgufMode::kParity, .importance = importance.values});
  const auto best =
      encode(row.values, {1, kCols}, id, {.importance = importance.values, .weighting = weighting});
  const std::string what =
      std::string(format_info(id).name) + ", " + row.name + ", " + importance.name;
  EXPECT_TRUE(best.has_value()) << what;
  if (!parity || !best) return false;
  const bool magnitude = weighting == GgufWeighting::kImportanceMagnitude ||
                         (weighting == GgufWeighting::kAuto && importance.values.empty());
  const auto before = block_errors(*parity, row.values, importance.values, magnitude);
  const auto after = block_errors(*best, row.values, importance.values, magnitude);
  // Weights of magnitudes are rounded to binary32 by the encoder.
  const double rounding = magnitude ? 1 + 1e-6 : 1;
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_LE(after[i], before[i] * rounding) << what << " block " << i;
  return true;
}

TEST(GgufBest, NoBlockIsWorseThanParity) {
  int compared = 0;
  for (const FormatId id : encodable_formats())
    for (const Named& row : kinds_of_rows())
      for (const Named& importance : kinds_of_importance())
        for (const auto weighting : {GgufWeighting::kAuto, GgufWeighting::kImportance,
                                     GgufWeighting::kImportanceMagnitude})
          compared += compare_blocks(id, row, importance, weighting);
  EXPECT_GT(compared, 18 * 13 * 4 * 3);
}

TEST(GgufBest, TotalErrorFallsOnOrdinaryWeights) {
  constexpr Shape kShape{8, 1024};
  const std::vector<float> importance = gguf::lognormal(1024, kSeed);
  for (const FormatId id : encodable_formats()) {
    const std::vector<float> values = gguf::heavy_tailed(8 * 1024, kSeed + 9);
    for (const auto weighting : {GgufWeighting::kImportance, GgufWeighting::kImportanceMagnitude}) {
      const auto parity =
          encode(values, kShape, id, {.mode = GgufMode::kParity, .importance = importance});
      const auto best =
          encode(values, kShape, id, {.importance = importance, .weighting = weighting});
      ASSERT_TRUE(parity.has_value() && best.has_value());
      // Under ggml's heuristic the sum reported is not the one made small.
      const double allowed = weighting == GgufWeighting::kImportance ? 0.99 : 1.25;
      EXPECT_LT(best->weighted_rms, allowed * parity->weighted_rms) << format_info(id).name;
      EXPECT_GT(best->from_search, best->blocks / 8) << format_info(id).name;
    }
  }
}

// The least error of a block over every finite binary16 scale, codes nearest by value.
double exhaustive_error(FormatId id, std::span<const float> x) {
  const FormatOps& ops = format_ops(id);
  const std::uint32_t codes =
      format_info(id).name.starts_with("gguf.tq") ? 3u : 1u << format_info(id).code_bits;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) == 0x7C00 || (half & 0x7FFF) < 0x0800) continue;
    RawParams raw{{half}};
    GroupValues group;
    ops.values({}, std::span(&raw, 1), std::span(&group, 1));
    float values[32];
    for (std::uint32_t code = 0; code < codes; ++code) values[code] = ops.value(group, code);
    double error = 0;
    for (const float value : x) {
      double nearest = std::numeric_limits<double>::infinity();
      for (std::uint32_t code = 0; code < codes; ++code)
        nearest = std::min(nearest, std::abs(static_cast<double>(value) - values[code]));
      error += nearest * nearest;
      if (error > least) break;
    }
    least = std::min(least, error);
  }
  return least;
}

TEST(GgufBest, ScalesAreNearTheBestOfAllStored) {
  for (const char* name : {"gguf.q2_0", "gguf.q4_0", "gguf.iq4_nl", "gguf.q5_0", "gguf.tq2_0"}) {
    const FormatId id = find_format(name).value();
    const auto block = static_cast<std::size_t>(gguf::find_block_encoder(id)->block);
    double found = 0, least = 0;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const std::vector<float> x =
          i % 2 == 0 ? gguf::gaussian(block, kSeed + i) : gguf::heavy_tailed(block, kSeed + i);
      const auto made = encode(x, {1, static_cast<std::int64_t>(block)}, id,
                               {.weighting = GgufWeighting::kImportance});
      ASSERT_TRUE(made.has_value());
      const double error = block_errors(*made, x, {}, false)[0];
      const double best = exhaustive_error(id, x);
      EXPECT_LE(best, error * (1 + 1e-9)) << name;
      found += error;
      least += best;
    }
    EXPECT_LE(found, 1.01 * least) << name;
  }
}

// A block of columns that no token reached is quantized by its values: the reference writes zeros.
TEST(GgufBest, ZeroImportanceFallsBackToValues) {
  const std::vector<float> x = gguf::gaussian(kCols, kSeed + 10);
  std::vector<float> importance(kCols, 1.0f);
  std::fill_n(importance.begin(), 256, 0.0f);
  for (const FormatId id : encodable_formats()) {
    const auto plain = encode(x, {1, kCols}, id, {.weighting = GgufWeighting::kImportance});
    const auto made = encode(x, {1, kCols}, id, {.importance = importance});
    ASSERT_TRUE(plain.has_value() && made.has_value());
    EXPECT_LE(made->report.relative_rms, 1.02 * plain->report.relative_rms) << format_info(id).name;
    EXPECT_EQ(made->report.lost_groups, 0);
  }
}

// NVFP4's scales from 248 up: ggml writes 448 for all of them.
TEST(GgufBest, LargeScalesOfNvfp4AreTheirOwn) {
  std::vector<float> x(64);
  for (std::size_t i = 0; i < 64; ++i) x[i] = 6.0f * 256.0f * (i % 2 == 0 ? 1.0f : -0.5f);
  const FormatId id = find_format("gguf.nvfp4").value();
  const auto parity = encode(x, {1, 64}, id, {.mode = GgufMode::kParity});
  const auto best = encode(x, {1, 64}, id, {});
  ASSERT_TRUE(parity.has_value() && best.has_value());
  EXPECT_GT(parity->report.relative_rms, 0.1);
  EXPECT_EQ(best->report.relative_rms, 0);
}

}  // namespace
}  // namespace packstone
