// Error feedback: identities that hold exactly, and a proxy error below plain rounding's on the
// grid of every format.
#include "packstone/quantize/feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/quantize/factor.h"
#include "packstone/quantize/gguf/gguf_encode.h"
#include "packstone/quantize/grid.h"
#include "packstone/quantize/second_moment.h"
#include "packstone/quantize/test_layer.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

using testing::Layer;
using testing::make_layer;
using testing::plain_product;

FormatParams params_of(FormatId id) {
  FormatParams params;
  const auto sizes = format_info(id).group_sizes;
  if (sizes.size() > 1) params.group_cols = 64;
  if (sizes.size() == 1 && sizes[0] == kWholeRow) params.group_cols = 256;
  return params;
}

TEST(SecondMoment, D13_MatchesFloat64) {
  constexpr std::int64_t kCols = 40, kRows = 1300;
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kCols);
  for (float& value : x) value = normal(random);
  SecondMoment moment = *SecondMoment::make(kCols, "test");
  moment.add({x.data(), 700, kCols, kCols}, plain_product);
  moment.add({x.data() + 700 * kCols, 600, kCols, kCols}, plain_product);
  moment.finish(plain_product);
  double off = 0, size = 0;
  for (std::int64_t i = 0; i < kCols; ++i)
    for (std::int64_t j = 0; j < kCols; ++j) {
      double sum = 0;
      for (std::int64_t t = 0; t < kRows; ++t)
        sum += static_cast<double>(x[static_cast<std::size_t>(t * kCols + i)]) *
               x[static_cast<std::size_t>(t * kCols + j)];
      const double got = moment.matrix()[static_cast<std::size_t>(i * kCols + j)];
      off += (got - sum) * (got - sum);
      size += sum * sum;
      EXPECT_EQ(moment.matrix()[static_cast<std::size_t>(i * kCols + j)],
                moment.matrix()[static_cast<std::size_t>(j * kCols + i)]);
    }
  EXPECT_LE(std::sqrt(off / size), 1e-6);
}

TEST(SecondMoment, RowsThatAreNotFiniteAreLeftOut) {
  const float x[] = {1, 2, NAN, 3, INFINITY, 4, 5, 6};
  SecondMoment moment = *SecondMoment::make(2, "test");
  moment.add({x, 4, 2, 2}, plain_product);
  moment.finish(plain_product);
  EXPECT_EQ(moment.rows(), 2);
  EXPECT_EQ(moment.dropped(), 2);
  EXPECT_EQ(moment.matrix()[0], 26);
  EXPECT_EQ(moment.matrix()[1], 32);
}

TEST(Factor, D14_FactorOfTheInverse) {
  ThreadPool one(1), three(3);
  for (const std::int64_t n : {1, 5, 64, 65, 200}) {
    const Layer layer = make_layer(1, n, 11);
    const Factor factor = *inverse_factor(layer.hessian, n, {0.01}, one, "test");
    const Factor again = *inverse_factor(layer.hessian, n, {0.01}, three, "test");
    EXPECT_EQ(factor.upper, again.upper);
    // H' U^T U = I.
    double worst = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<double> row(static_cast<std::size_t>(n)), out(row);
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t j = 0; j < n; ++j)
          row[static_cast<std::size_t>(k)] +=
              (layer.hessian[static_cast<std::size_t>(i * n + j)] + (i == j ? factor.lambda : 0)) *
              factor.upper[static_cast<std::size_t>(k * n + j)];
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t j = k; j < n; ++j)
          out[static_cast<std::size_t>(j)] +=
              row[static_cast<std::size_t>(k)] * factor.upper[static_cast<std::size_t>(k * n + j)];
      for (std::int64_t j = 0; j < n; ++j)
        worst = std::max(worst, std::abs(out[static_cast<std::size_t>(j)] - (i == j)));
    }
    EXPECT_LE(worst, 1e-3) << n;
  }
}

TEST(Factor, D14_Refusals) {
  ThreadPool pool(1);
  const std::vector<float> zero(16), bad = {1, 0, 0, NAN};
  for (const double damping : {0.0, 1.0, -1.0, static_cast<double>(NAN)})
    EXPECT_EQ(inverse_factor(zero, 4, {damping}, pool, "test").error().code,
              ErrorCode::kInvalidInput);
  EXPECT_TRUE(inverse_factor(zero, 4, {0.01}, pool, "test")) << "a zero Hessian has a factor";
  EXPECT_EQ(inverse_factor(bad, 2, {0.01}, pool, "test").error().code,
            ErrorCode::kNotRepresentable);
  EXPECT_EQ(inverse_factor(zero, 3, {0.01}, pool, "test").error().code, ErrorCode::kInvalidInput);
}

constexpr std::int64_t kGridRows = 64, kGridCols = 256;

std::vector<FormatId> grids() {
  std::vector<FormatId> ids;
  for (std::uint16_t index = 0; index < format_count(); ++index)
    if (Grid::supports(FormatId{index}) &&
        layout_rule(FormatId{index}, {kGridRows, kGridCols}, params_of(FormatId{index})) == nullptr)
      ids.push_back(FormatId{index});
  return ids;
}

class FeedbackOnEveryGrid : public ::testing::TestWithParam<FormatId> {};

TEST_P(FeedbackOnEveryGrid, BeatsPlainRounding) {
  const FormatId id = GetParam();
  static const Layer layer = make_layer(kGridRows, kGridCols, 5);
  std::vector<float> diagonal(layer.hessian.size());
  for (std::size_t i = 0; i < kGridCols; ++i)
    diagonal[i * (kGridCols + 1)] = layer.hessian[i * (kGridCols + 1)];
  ThreadPool one(1), three(3);
  const FormatParams params = params_of(id);
  const auto fed = quantize_with_feedback({layer.view(), layer.hessian}, id, params, {},
                                          plain_product, one, "test");
  ASSERT_TRUE(fed) << fed.error().message;
  const auto again = quantize_with_feedback({layer.view(), layer.hessian}, id, params, {},
                                            plain_product, three, "test");
  EXPECT_EQ(fed->loss, again->loss);
  for (int plane = 0; plane < fed->weight.plane_count(); ++plane)
    EXPECT_TRUE(std::ranges::equal(fed->weight.plane(plane), again->weight.plane(plane)));
  const auto plain =
      quantize_with_feedback({layer.view(), diagonal}, id, params, {}, plain_product, one, "test");
  ASSERT_TRUE(plain) << plain.error().message;
  const auto proxy = [&](const PackedWeight& weight) {
    double sum = 0;
    std::vector<float> rest(kGridCols), product(kGridCols);
    for (std::int64_t row = 0; row < kGridRows; ++row) {
      decode_row(weight, row, rest);
      for (std::size_t c = 0; c < kGridCols; ++c) rest[c] -= layer.view().row(row)[c];
      plain_product({rest.data(), 1, kGridCols, kGridCols},
                    {layer.hessian.data(), kGridCols, kGridCols, kGridCols}, product.data(),
                    kGridCols);
      for (std::size_t c = 0; c < kGridCols; ++c) sum += static_cast<double>(rest[c]) * product[c];
    }
    return sum;
  };
  EXPECT_LT(proxy(fed->weight), 0.8 * proxy(plain->weight));
  // D21: the errors by the factor's diagonal add up to what the damped Hessian makes of all errors.
  double square = 0;
  for (const float value : layer.weight) square += static_cast<double>(value) * value;
  const double rest = fed->report.relative_rms * fed->report.relative_rms * square;
  EXPECT_NEAR(2 * fed->loss / (proxy(fed->weight) + fed->lambda * rest), 1, 0.01);
  std::printf("%-22s proxy error %.3e, without feedback %.3e\n",
              std::string(format_info(id).name).c_str(), fed->proxy_error,
              fed->proxy_error * proxy(plain->weight) / proxy(fed->weight));
}

// The search that knows a format only by its parameters against the encoders made for each type.
TEST(Grid, NearTheEncodersOfGguf) {
  constexpr std::int64_t kRows = 64, kCols = 512;
  const Layer layer = make_layer(kRows, kCols, 9);
  std::vector<float> importance(kCols);
  for (std::size_t i = 0; i < kCols; ++i) importance[i] = layer.hessian[i * kCols + i];
  ThreadPool pool(1);
  for (std::uint16_t index = 0; index < format_count(); ++index) {
    const FormatId id{index};
    if (!Grid::supports(id) || !gguf_encode_supports(id)) continue;
    const auto error = [&](const PackedWeight& weight) {
      std::vector<float> decoded(kCols);
      double sum = 0;
      for (std::int64_t row = 0; row < kRows; ++row) {
        decode_row(weight, row, decoded);
        for (std::size_t c = 0; c < kCols; ++c) {
          const double rest = decoded[c] - layer.view().row(row)[c];
          sum += importance[c] * rest * rest;
        }
      }
      return sum;
    };
    const auto grid = round_to_grid(layer.view(), importance, id, {}, pool, "test");
    const auto encoded = gguf_encode(matrix_rows(layer.view()), {kRows, kCols}, id,
                                     {.importance = importance}, pool, "test");
    ASSERT_TRUE(grid && encoded);
    std::printf("%-12s grid / encoder %.4f\n", std::string(format_info(id).name).c_str(),
                error(grid->weight) / error(encoded->weight));
    EXPECT_LT(error(grid->weight), 1.1 * error(encoded->weight)) << format_info(id).name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, FeedbackOnEveryGrid, ::testing::ValuesIn(grids()),
                         [](const auto& format) {
                           std::string name(format_info(format.param).name);
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace packstone
