// GPTAQ: without a drift it is GPTQ bit for bit, its correction is the formula's, and against
// inputs of the unquantized model the output error falls.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/quantize/factor.h"
#include "packstone/quantize/feedback.h"
#include "packstone/quantize/test_layer.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

using testing::Layer;
using testing::make_layer;
using testing::plain_product;

constexpr std::int64_t kRows = 48, kCols = 160;

FormatId affine3() {
  return *find_format("mlx.affine.w3");
}

struct Drifted {
  Layer layer;
  std::vector<float> wanted, drift;  // inputs of the unquantized model; [cols, cols]
};

// The wanted inputs are those of the layer, mixed a little and with noise.
Drifted drifted(std::uint64_t seed) {
  Drifted made{make_layer(kRows, kCols, seed), {}, {}};
  const std::int64_t tokens = static_cast<std::int64_t>(made.layer.inputs.size()) / kCols;
  std::mt19937_64 random(seed + 1);
  std::normal_distribution<float> normal;
  made.wanted = made.layer.inputs;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t c = 0; c < kCols; ++c)
      made.wanted[static_cast<std::size_t>(t * kCols + c)] +=
          0.3f * made.layer.inputs[static_cast<std::size_t>(t * kCols + (c + 5) % kCols)] +
          0.1f * normal(random);
  CrossMoment moment = *CrossMoment::make(kCols, "test");
  // Cut into calls unevenly: pieces are of rows, not of calls.
  const MatrixView wanted{made.wanted.data(), tokens, kCols, kCols};
  const MatrixView have{made.layer.inputs.data(), tokens, kCols, kCols};
  moment.add(wanted.part(0, 7, 0, kCols), have.part(0, 7, 0, kCols), plain_product);
  moment.add(wanted.part(7, tokens - 7, 0, kCols), have.part(7, tokens - 7, 0, kCols),
             plain_product);
  moment.finish(plain_product);
  made.drift.assign(moment.matrix().begin(), moment.matrix().end());
  return made;
}

FeedbackResult fed(const Drifted& made, std::span<const float> drift, float alpha, int threads) {
  ThreadPool pool(threads);
  FeedbackOptions options;
  options.alpha = alpha;
  return *quantize_with_feedback({made.layer.view(), made.layer.hessian, 0.01, drift}, affine3(),
                                 {.group_cols = 32}, options, plain_product, pool, "test");
}

std::vector<float> decoded(const PackedWeight& weight) {
  std::vector<float> values(kRows * kCols);
  for (std::int64_t row = 0; row < kRows; ++row)
    decode_row(weight, row,
               std::span(values).subspan(static_cast<std::size_t>(row * kCols), kCols));
  return values;
}

// Sum over tokens and rows of (w x~ - q x)^2.
double output_error(const Drifted& made, const PackedWeight& weight) {
  const std::vector<float> q = decoded(weight);
  double sum = 0;
  for (std::size_t t = 0; t < made.wanted.size(); t += kCols)
    for (std::size_t row = 0; row < kRows; ++row) {
      double rest = 0;
      for (std::size_t c = 0; c < kCols; ++c)
        rest += static_cast<double>(made.layer.weight[row * kCols + c]) * made.wanted[t + c] -
                static_cast<double>(q[row * kCols + c]) * made.layer.inputs[t + c];
      sum += rest * rest;
    }
  return sum;
}

TEST(CrossMoment, MatchesFloat64) {
  const Drifted made = drifted(3);
  for (std::size_t i = 0; i < kCols; i += 13)
    for (std::size_t j = 0; j < kCols; j += 7) {
      double sum = 0, size = 0;
      for (std::size_t t = 0; t < made.wanted.size(); t += kCols) {
        const double rest = static_cast<double>(made.wanted[t + i]) - made.layer.inputs[t + i];
        sum += rest * made.layer.inputs[t + j];
        size += std::abs(rest * made.layer.inputs[t + j]);
      }
      EXPECT_NEAR(made.drift[i * kCols + j], sum, 1e-5 * size);
    }
}

TEST(Gptaq, D19_WithoutDriftItIsGptqBitForBit) {
  const Drifted made = drifted(5);
  const std::vector<float> zero(made.drift.size());
  const std::vector<float> plain = decoded(fed(made, {}, 0.25f, 1).weight);
  EXPECT_EQ(plain, decoded(fed(made, zero, 0.25f, 1).weight));
  EXPECT_EQ(plain, decoded(fed(made, made.drift, 0.0f, 1).weight));
  EXPECT_NE(plain, decoded(fed(made, made.drift, 0.25f, 1).weight));
  EXPECT_EQ(decoded(fed(made, made.drift, 0.25f, 1).weight),
            decoded(fed(made, made.drift, 0.25f, 3).weight));
}

TEST(Gptaq, D19_CorrectionIsTheFormula) {
  const Drifted made = drifted(7);
  ThreadPool pool(1);
  const Factor factor = *inverse_factor(made.layer.hessian, kCols, {0.01}, pool, "test");
  const std::vector<float> got =
      *gptaq_correction(made.drift, factor.upper, 0.25f, kCols, plain_product, "test");
  std::vector<double> inner(kCols * kCols);
  for (std::size_t i = 0; i < kCols; ++i)
    for (std::size_t j = i + 1; j < kCols; ++j)
      for (std::size_t k = j; k < kCols; ++k)
        inner[i * kCols + j] += 0.25 * made.drift[i * kCols + k] * factor.upper[j * kCols + k];
  double off = 0, size = 0;
  for (std::size_t i = 0; i < kCols; ++i)
    for (std::size_t j = 0; j < kCols; ++j) {
      double want = 0;
      for (std::size_t k = 0; k <= j; ++k)
        want += inner[i * kCols + k] * factor.upper[k * kCols + j];
      if (j <= i) {
        EXPECT_EQ(got[i * kCols + j], 0);
      }
      off += (got[i * kCols + j] - want) * (got[i * kCols + j] - want);
      size += want * want;
    }
  EXPECT_LE(std::sqrt(off / size), 1e-5);
}

TEST(Gptaq, OutputErrorFallsAgainstTheInputsOfTheUnquantizedModel) {
  for (const std::uint64_t seed : {11, 12, 13}) {
    const Drifted made = drifted(seed);
    const double plain = output_error(made, fed(made, {}, 1, 2).weight);
    const double quarter = output_error(made, fed(made, made.drift, 0.25f, 2).weight);
    const double whole = output_error(made, fed(made, made.drift, 1, 2).weight);
    EXPECT_LT(quarter, 0.9 * plain) << "seed " << seed;
    EXPECT_LT(whole, 0.5 * plain) << "seed " << seed;
  }
}

TEST(Gptaq, D19_Refusals) {
  const std::vector<float> square(9, 1.0f), other(4, 1.0f);
  EXPECT_FALSE(gptaq_correction(square, other, 0.25f, 3, plain_product, "test"));
  EXPECT_FALSE(gptaq_correction(other, square, 0.25f, 3, plain_product, "test"));
  EXPECT_FALSE(gptaq_correction(square, square, NAN, 3, plain_product, "test"));
  EXPECT_FALSE(gptaq_correction({}, {}, 0.25f, 0, plain_product, "test"));
  std::vector<float> broken = square;
  broken[5] = INFINITY;
  const auto refused = gptaq_correction(broken, square, 0.25f, 3, plain_product, "test");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("[1, 2]"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace packstone
