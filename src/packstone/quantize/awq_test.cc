// Proves that the search of AWQ never ends with a larger error than it began with, finds one that
// is smaller where channels are unequal, keeps shared scales equal, and does not depend on threads.
#include "packstone/quantize/awq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "packstone/format/registry.h"
#include "packstone/quantize/test_layer.h"

namespace packstone {
namespace {

using testing::Layer;
using testing::make_layer;
using testing::plain_product;

FormatId format(std::string_view name) {
  return *find_format(name);
}

std::vector<float> mean_abs(const Layer& layer) {
  std::vector<float> means(static_cast<std::size_t>(layer.cols));
  const std::int64_t tokens = static_cast<std::int64_t>(layer.inputs.size()) / layer.cols;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i)
    means[i % means.size()] += std::abs(layer.inputs[i]) / static_cast<float>(tokens);
  return means;
}

struct Problem {
  Layer layer;
  std::vector<float> means;
  AwqGroup group;
  explicit Problem(std::string_view name, std::uint64_t seed = 5)
      : layer(make_layer(24, 64, seed)), means(mean_abs(layer)) {
    group = {{layer.view(), layer.view().part(0, 8, 0, 64)},
             layer.hessian,
             means,
             {},
             0,
             format(name),
             {.group_cols = format_info(format(name)).group_sizes.size() > 1 ? 32 : 0}};
  }
  Result<AwqScales> search(int threads = 2) const {
    ThreadPool pool(threads);
    return search_awq_scales(group, plain_product, pool, "layer");
  }
};

TEST(Awq, ScalesLowerTheErrorOfTheOutputs) {
  for (const char* name : {"mlx.affine.w4", "mlx.affine.w3", "gguf.q4_0", "mx.mxfp4"}) {
    const Problem problem(name);
    const AwqScales found = problem.search().value();
    EXPECT_LT(found.loss, 0.9 * found.unscaled_loss) << name;
    for (const float scale : found.scales) EXPECT_TRUE(std::isfinite(scale) && scale > 0);
  }
}

TEST(Awq, SameBitsForAnyThreadCount) {
  const Problem problem("mlx.affine.w4");
  const AwqScales one = problem.search(1).value(), three = problem.search(3).value();
  EXPECT_EQ(one.scales, three.scales);
  EXPECT_EQ(one.loss, three.loss);
}

TEST(Awq, SharedChannelsHaveOneScale) {
  Problem problem("mlx.affine.w4");
  std::vector<std::int32_t> shared(64);
  for (std::size_t c = 0; c < shared.size(); ++c) shared[c] = static_cast<std::int32_t>(c % 16);
  problem.group.shared = shared;
  problem.group.scales = 16;
  const AwqScales found = problem.search().value();
  EXPECT_EQ(found.scales.size(), 16u);
  EXPECT_LE(found.loss, found.unscaled_loss);
}

// Channels without input and weights without a value leave no scale that is not a number.
TEST(Awq, DeadChannelsKeepFiniteScales) {
  Problem problem("mlx.affine.w4");
  for (std::size_t c = 0; c < 64; c += 5) {
    problem.means[c] = 0;
    for (std::size_t k = 0; k < 64; ++k)
      problem.layer.hessian[c * 64 + k] = problem.layer.hessian[k * 64 + c] = 0;
    for (std::size_t r = 0; r < 24; ++r) problem.layer.weight[r * 64 + c] = 0;
  }
  const AwqScales found = problem.search().value();
  for (const float scale : found.scales) EXPECT_TRUE(std::isfinite(scale) && scale > 0);
  EXPECT_LE(found.loss, found.unscaled_loss);
}

TEST(Awq, RefusesStatisticsOfOtherShapes) {
  Problem few("mlx.affine.w4"), none("mlx.affine.w4"), far("mlx.affine.w4");
  few.group.mean_abs = few.group.mean_abs.subspan(1);
  none.group.weights.clear();
  const std::vector<std::int32_t> shared(64, 7);
  far.group.shared = shared;
  far.group.scales = 7;
  for (const Problem* problem : {&few, &none, &far}) {
    const auto found = problem->search();
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidInput);
  }
}

}  // namespace
}  // namespace packstone
