// Proves perplexity and divergence against sums written out from each_logits, and each_logits
// against one forward call.
#include "packstone/model/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "packstone/model/test_checkpoint.h"

namespace packstone {
namespace {

using testing::random_checkpoint;
using testing::tiny_config;

std::vector<std::int32_t> text(std::size_t count) {
  std::mt19937 random(9);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 96);
  return tokens;
}

// log softmax of every position in float64.
std::vector<std::vector<double>> log_probabilities(Model& model,
                                                   std::span<const std::int32_t> tokens) {
  std::vector<std::vector<double>> rows;
  const auto sink = [&](std::int64_t first, std::span<const float> logits) -> Status {
    EXPECT_EQ(first, static_cast<std::int64_t>(rows.size()));
    for (std::size_t at = 0; at < logits.size(); at += 96) {
      std::vector<double> row(logits.begin() + static_cast<std::ptrdiff_t>(at),
                              logits.begin() + static_cast<std::ptrdiff_t>(at + 96));
      double sum = 0;
      for (const double value : row) sum += std::exp(value);
      for (double& value : row) value -= std::log(sum);
      rows.push_back(std::move(row));
    }
    return {};
  };
  EXPECT_TRUE(each_logits(model, tokens, 5, sink));
  return rows;
}

class Evaluate : public ::testing::Test {
 protected:
  ThreadPool pool_{2};
  Model model_ =
      Model::load(random_checkpoint(tiny_config(Architecture::kLlama), 1), pool_).value();
  Model other_ =
      Model::load(random_checkpoint(tiny_config(Architecture::kLlama), 2), pool_).value();
};

TEST_F(Evaluate, PerplexityScoresTheSecondHalfOfEveryWindow) {
  const auto tokens = text(70);  // four windows of 16, six tokens left out
  EvalOptions options;
  options.context = 16;
  options.bos = 1;
  options.logits_rows = 3;
  double sum = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    std::vector<std::int32_t> window(tokens.begin() + static_cast<std::ptrdiff_t>(16 * w),
                                     tokens.begin() + static_cast<std::ptrdiff_t>(16 * w + 16));
    window[0] = 1;
    const auto rows = log_probabilities(model_, window);
    for (std::size_t i = 8; i + 1 < 16; ++i)
      sum -= rows[i][static_cast<std::size_t>(window[i + 1])];
  }
  std::int64_t last_done = 0;
  const auto progress = [&](std::int64_t done, std::int64_t total, double ppl) {
    EXPECT_EQ(total, 4);
    EXPECT_EQ(done, last_done + 1);
    EXPECT_GT(ppl, 1);
    last_done = done;
  };
  const auto result = perplexity(model_, tokens, options, progress).value();
  EXPECT_EQ(last_done, 4);
  EXPECT_EQ(result.windows, 4);
  EXPECT_EQ(result.scored, 4 * 7);
  EXPECT_NEAR(result.nll_mean, sum / 28, 1e-6);
  EXPECT_NEAR(result.ppl, std::exp(sum / 28), 1e-3);
  EXPECT_GT(result.nll_error, 0);
  options.logits_rows = 100;
  EXPECT_EQ(perplexity(model_, tokens, options)->nll_mean, result.nll_mean);
}

TEST_F(Evaluate, StrideAndFromChooseTheWindows) {
  const auto tokens = text(40);
  EvalOptions options;
  options.context = 16;
  options.stride = 4;
  options.from = 11;
  const auto result = perplexity(model_, tokens, options).value();
  EXPECT_EQ(result.windows, 7);  // starts 0, 4, ..., 24
  EXPECT_EQ(result.scored, 7 * 4);
  options.windows_max = 2;
  EXPECT_EQ(perplexity(model_, tokens, options)->windows, 2);
}

TEST_F(Evaluate, DivergenceFollowsItsDefinition) {
  const auto tokens = text(33);
  EvalOptions options;
  options.context = 16;
  options.from = 0;
  const auto result = divergence(model_, other_, tokens, options).value();
  std::vector<double> klds;
  int same = 0;
  for (std::size_t w = 0; w < 2; ++w) {
    const auto window = std::span(tokens).subspan(16 * w, 16);
    const auto q = log_probabilities(model_, window), p = log_probabilities(other_, window);
    for (std::size_t i = 0; i < 15; ++i) {
      double kld = 0;
      for (std::size_t v = 0; v < 96; ++v) kld += std::exp(p[i][v]) * (p[i][v] - q[i][v]);
      klds.push_back(kld);
      same += std::ranges::max_element(p[i]) - p[i].begin() ==
              std::ranges::max_element(q[i]) - q[i].begin();
    }
  }
  double sum = 0;
  for (const double kld : klds) sum += kld;
  std::ranges::sort(klds);
  EXPECT_NEAR(result.kld_mean, sum / 30, 1e-6);
  EXPECT_NEAR(result.kld_max, klds[29], 1e-6);
  EXPECT_NEAR(result.kld_p99, klds[29], 1e-6);
  EXPECT_NEAR(result.top1_agreement, same / 30.0, 1e-12);
  EXPECT_EQ(result.perplexity.ppl, perplexity(model_, tokens, options)->ppl);
  EXPECT_EQ(result.perplexity_against.ppl, perplexity(other_, tokens, options)->ppl);
}

TEST_F(Evaluate, AModelDoesNotDivergeFromItself) {
  const auto tokens = text(64);
  EvalOptions options;
  options.context = 32;
  const auto result = divergence(model_, model_, tokens, options).value();
  EXPECT_EQ(result.kld_max, 0);
  EXPECT_EQ(result.top1_agreement, 1);
}

TEST_F(Evaluate, NoRankHidesAPositionThatIsNotANumber) {
  const ModelConfig config = tiny_config(Architecture::kMistral);
  Checkpoint damaged = random_checkpoint(config, 1);
  std::vector<float> embedding(static_cast<std::size_t>(96 * config.hidden), 0.5f);
  embedding.back() = std::numeric_limits<float>::quiet_NaN();  // of token 95
  testing::add_tensor(damaged, "model.embed_tokens.weight", 96, config.hidden, embedding);
  Model model = Model::load(std::move(damaged), pool_).value();
  Model against = Model::load(random_checkpoint(config, 2), pool_).value();
  std::vector<std::int32_t> tokens = text(64);
  for (std::int32_t& token : tokens) token %= 95;
  EvalOptions options;
  options.context = 16;
  options.from = 0;
  EXPECT_TRUE(std::isfinite(divergence(model, against, tokens, options)->kld_max));
  tokens[24] = 95;  // the later positions of the second of four windows
  const auto result = divergence(model, against, tokens, options).value();
  EXPECT_TRUE(std::isnan(result.kld_mean));
  EXPECT_TRUE(std::isnan(result.kld_p99));
  EXPECT_TRUE(std::isnan(result.kld_max));
}

TEST_F(Evaluate, RefusesByName) {
  const auto tokens = text(64);
  const auto message = [&](EvalOptions options) {
    auto result = perplexity(model_, tokens, options);
    EXPECT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
    return result ? std::string() : result.error().message;
  };
  EvalOptions options;
  EXPECT_NE(message(options).find("text"), std::string::npos);  // 64 tokens, a window needs 512
  options.context = 513;
  EXPECT_NE(message(options).find("context"), std::string::npos);
  options.context = 16;
  options.stride = -1;
  EXPECT_NE(message(options).find("stride"), std::string::npos);
  options.stride = 0;
  options.from = 15;
  EXPECT_NE(message(options).find("from"), std::string::npos);
  options.from = -1;
  options.bos = 96;
  EXPECT_NE(message(options).find("bos"), std::string::npos);
  options.bos = 1;
  options.logits_rows = 0;
  EXPECT_NE(message(options).find("logits_rows"), std::string::npos);
  const std::atomic<bool> cancel = true;
  options.logits_rows = 1;
  EXPECT_EQ(perplexity(model_, tokens, options, {}, &cancel).error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace packstone
