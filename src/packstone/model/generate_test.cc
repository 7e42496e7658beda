// Proves the generation loop on models whose next token is known: end tokens, padded heads,
// cancelling, the context's end, and options refused by name.
#include "packstone/model/generate.h"

#include <gtest/gtest.h>

#include "packstone/model/test_checkpoint.h"

namespace packstone {
namespace {

using testing::forced_checkpoint;

// Token t is followed by (t + 1) % 10.
std::vector<std::int32_t> counting() {
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 0};
}

Model forced(ThreadPool& pool, std::int64_t head_rows, bool negative) {
  return Model::load(forced_checkpoint(counting(), head_rows, negative), pool).value();
}

Result<GenerateResult> run(Model& model, std::vector<std::int32_t> prompt,
                           const GenerateOptions& options, std::int64_t vocab_real = 10) {
  return generate(model, prompt, vocab_real, options, {}, nullptr);
}

TEST(Generate, CountsToItsLimit) {
  ThreadPool pool(2);
  Model model = forced(pool, 10, false);
  GenerateOptions options;
  options.tokens_max = 12;
  std::vector<std::int32_t> streamed;
  const auto on_token = [&](std::int32_t token) { streamed.push_back(token); };
  const std::vector<std::int32_t> prompt = {7, 3};
  const auto result = generate(model, prompt, 10, options, on_token, nullptr).value();
  EXPECT_EQ(result.tokens, (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(streamed, result.tokens);
  EXPECT_EQ(result.finish_reason, "length");
  options.tokens_max = 0;
  EXPECT_TRUE(run(model, {1}, options).value().tokens.empty());
}

// known-faults TOK-07: one source of end tokens replaces another instead of adding to it.
TEST(Generate, Tok07StopsAtTheEndTokensOfEverySource) {
  const std::int64_t model_ends[] = {2, 1, 6};   // config.json 2, generation_config.json [1, 6]
  const std::int32_t tokenizer_ends[] = {7, 6};  // the tokenizer's end of turn 7
  const auto ends = end_tokens(model_ends, tokenizer_ends, 10);
  EXPECT_EQ(ends, (std::vector<std::int32_t>{1, 2, 6, 7}));
  ThreadPool pool(1);
  Model model = forced(pool, 10, false);
  GenerateOptions options;
  options.end_tokens = ends;
  for (const std::int32_t end : ends) {
    const auto result = run(model, {(end + 9) % 10}, options).value();
    EXPECT_EQ(result.tokens, std::vector<std::int32_t>{end});
    EXPECT_EQ(result.finish_reason, "stop");
  }
  const std::int64_t beyond[] = {-1, 10, 1'000'000'000'000};
  EXPECT_TRUE(end_tokens(beyond, {}, 10).empty());
}

// known-faults SMP-04: zero rows of a padded head win when all real logits are negative.
TEST(Generate, Smp04PaddedRowsAreNeverChosen) {
  ThreadPool pool(1);
  Model model = forced(pool, 16, true);
  GenerateOptions options;
  options.tokens_max = 50;
  const auto greedy = run(model, {0}, options).value();
  for (std::size_t i = 0; i < greedy.tokens.size(); ++i)
    EXPECT_EQ(greedy.tokens[i], static_cast<std::int32_t>((i + 1) % 10));
  options.sampler.temperature = 5.0f;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    options.sampler.seed = seed;
    const auto sampled = run(model, {0}, options).value();
    for (const std::int32_t token : sampled.tokens) EXPECT_LT(token, 10);
  }
  // Without the tokenizer's size the padding would win: the test would notice.
  options = {.tokens_max = 1, .end_tokens = {}, .sampler = {}};
  EXPECT_GE(run(model, {0}, options, 16).value().tokens.at(0), 10);
}

TEST(Generate, Smp07LowTemperatureEqualsGreedy) {
  ThreadPool pool(1);
  Model model = forced(pool, 16, true);
  GenerateOptions options;
  options.tokens_max = 20;
  const auto greedy = run(model, {4}, options).value().tokens;
  for (const float temperature : {1e-3f, 1e-4f, 1e-8f, 1e-40f}) {
    options.sampler.temperature = temperature;
    EXPECT_EQ(run(model, {4}, options).value().tokens, greedy);
  }
}

TEST(Generate, EndsWithTheContextAndOnCancel) {
  ThreadPool pool(1);
  Checkpoint checkpoint = forced_checkpoint(counting(), 10, false);
  checkpoint.config.context = 8;
  Model model = Model::load(std::move(checkpoint), pool).value();
  const auto result = run(model, {0, 1, 2}, {}).value();
  EXPECT_EQ(result.finish_reason, "length");
  EXPECT_EQ(result.tokens.size(), 6u);  // positions 3 to 7 are run; the logits of 7 give one more
  std::atomic<bool> cancel = false;
  const std::vector<std::int32_t> prompt = {0};
  const auto stopped =
      generate(
          model, prompt, 10, {}, [&](std::int32_t token) { cancel = token == 3; }, &cancel)
          .value();
  EXPECT_EQ(stopped.finish_reason, "cancelled");
  EXPECT_EQ(stopped.tokens, (std::vector<std::int32_t>{1, 2, 3}));
  cancel = true;
  EXPECT_EQ(generate(model, prompt, 10, {}, {}, &cancel)->finish_reason, "cancelled");
}

TEST(Generate, RefusesByName) {
  ThreadPool pool(1);
  Model model = forced(pool, 10, false);
  const auto message = [&](std::vector<std::int32_t> prompt, const GenerateOptions& options,
                           std::int64_t vocab_real = 10) {
    auto result = run(model, std::move(prompt), options, vocab_real);
    EXPECT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
    return result.error().message;
  };
  GenerateOptions options;
  EXPECT_NE(message({}, options).find("prompt"), std::string::npos);
  EXPECT_NE(message(std::vector<std::int32_t>(513, 1), options).find("prompt"), std::string::npos);
  EXPECT_NE(message({10}, options).find("token"), std::string::npos);
  EXPECT_NE(message({1}, options, 0).find("vocab_real"), std::string::npos);
  options.tokens_max = -1;
  EXPECT_NE(message({1}, options).find("tokens_max"), std::string::npos);
  options = {};
  options.end_tokens = {10};
  EXPECT_NE(message({1}, options).find("end_tokens"), std::string::npos);
  options = {};
  options.sampler.top_p = 2;
  EXPECT_NE(message({1}, options).find("top_p"), std::string::npos);
}

}  // namespace
}  // namespace packstone
