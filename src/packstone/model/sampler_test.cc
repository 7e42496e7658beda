// Proves the sampler's rules on small sets of logits: which ids may come, in which share, and that
// options out of range are refused by name.
#include "packstone/model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace packstone {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::map<std::int32_t, int> draw(const SamplerOptions& options, const std::vector<float>& logits,
                                 int count) {
  Sampler sampler(options, static_cast<std::int64_t>(logits.size()));
  std::map<std::int32_t, int> seen;
  for (int i = 0; i < count; ++i) ++seen[sampler.sample(logits).value()];
  return seen;
}

TEST(Sampler, GreedyTakesTheLargestAndTiesGoToTheSmallestId) {
  Sampler sampler({}, 5);
  EXPECT_EQ(*sampler.sample(std::vector<float>{0, 7, 7, -1, 7}), 1);
  EXPECT_EQ(*sampler.sample(std::vector<float>{-5, -4, -4, -9, -kInfinity}), 1);
  EXPECT_EQ(*sampler.sample(std::vector<float>{kNan, 1, kNan, 2, 0}), 3);
  EXPECT_EQ(sampler.sample(std::vector<float>{kNan, -kInfinity}).error().code,
            ErrorCode::kCorruptData);
}

// known-faults SMP-01: an empty set of candidates, hidden by a test that expects token 0.
TEST(Sampler, Smp01OffValuesAndExtremesKeepACandidate) {
  const std::vector<float> logits = {-1, -2, 3, 2};
  for (const std::int32_t top_k : {0, -1, 5, 1000}) {
    const auto seen = draw({.temperature = 1.0f, .top_k = top_k, .seed = 1}, logits, 4000);
    EXPECT_EQ(seen.size(), 4u) << "top_k " << top_k;
  }
  for (const SamplerOptions options : {SamplerOptions{.temperature = 1.0f, .top_k = 1},
                                       SamplerOptions{.temperature = 1.0f, .top_p = 0.0f},
                                       SamplerOptions{.temperature = 1.0f, .min_p = 1.0f}}) {
    const auto seen = draw(options, logits, 200);
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen.begin()->first, 2);
  }
  EXPECT_EQ(draw({.temperature = 1.0f, .top_p = 1.0f}, logits, 4000).size(), 4u);
}

// known-faults SMP-07: logits divided to infinity.
TEST(Sampler, Smp07VeryLowTemperatureTendsToGreedy) {
  const std::vector<float> logits = {1e4f, -3e4f, 1.0001e4f, 3e-39f};
  for (const float temperature : {1e-3f, 1e-4f, 1e-8f, 1e-40f}) {
    const auto seen = draw({.temperature = temperature, .top_p = 0.9f}, logits, 100);
    ASSERT_EQ(seen.size(), 1u) << temperature;
    EXPECT_EQ(seen.begin()->first, 2) << temperature;
  }
  EXPECT_EQ(draw({.temperature = 1e30f}, logits, 4000).size(), 4u);
  for (const float bad : {-1.0f, -1e-40f, kNan, kInfinity}) {
    const Status status = check_sampler({.temperature = bad});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(status.error().message.find("temperature"), std::string::npos);
  }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto message = [](const SamplerOptions& options) {
    const Status status = check_sampler(options);
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(message({.top_p = 1.5f}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.top_p = kNan}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.min_p = -0.1f}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.top_k = -2}).find("top_k"), std::string::npos);
  EXPECT_EQ(message({.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 40}), "");
}

TEST(Sampler, SharesFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f),
                                     std::log(0.4f)};
  constexpr int kCount = 40000;
  const auto seen = draw({.temperature = 1.0f, .seed = 5}, logits, kCount);
  for (std::int32_t id = 0; id < 4; ++id)
    EXPECT_NEAR(seen.at(id) / static_cast<double>(kCount), 0.1 * (id + 1), 0.01) << id;
  // Temperature 0.5 squares the shares: 1, 4, 9, 16 of 30.
  const auto cold = draw({.temperature = 0.5f, .seed = 6}, logits, kCount);
  EXPECT_NEAR(cold.at(0) / static_cast<double>(kCount), 1.0 / 30, 0.01);
  EXPECT_NEAR(cold.at(3) / static_cast<double>(kCount), 16.0 / 30, 0.01);
}

TEST(Sampler, FiltersCutWhereTheyShould) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f),
                                     std::log(0.4f)};
  const auto ids = [&](const SamplerOptions& options) {
    std::string text;
    for (const auto& [id, count] : draw(options, logits, 3000)) text += std::to_string(id);
    return text;
  };
  EXPECT_EQ(ids({.temperature = 1.0f, .top_k = 2}), "23");
  EXPECT_EQ(ids({.temperature = 1.0f, .top_p = 0.65f}), "23");
  EXPECT_EQ(ids({.temperature = 1.0f, .top_p = 0.75f}), "123");
  EXPECT_EQ(ids({.temperature = 1.0f, .min_p = 0.6f}), "23");
  // top_p counts within what top_k left: 0.4 of 0.7 is more than half.
  EXPECT_EQ(ids({.temperature = 1.0f, .top_p = 0.5f, .top_k = 2}), "3");
  const std::vector<float> ties(6, 1.0f);
  EXPECT_EQ(draw({.temperature = 1.0f, .top_k = 2}, ties, 500).rbegin()->first, 1);
}

TEST(Sampler, InfiniteLogitsAndNan) {
  const auto seen = draw({.temperature = 1.0f}, {1.0f, kInfinity, kNan, -kInfinity}, 100);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen.begin()->first, 1);
}

TEST(Sampler, SameSeedSameTokens) {
  std::vector<float> logits(50);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const auto run = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1.0f, .seed = seed}, 50);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(*sampler.sample(logits));
    return tokens;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(SplitMix64, KnownOutputs) {
  // The published test vector for seed 1234567.
  SplitMix64 random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

}  // namespace
}  // namespace packstone
