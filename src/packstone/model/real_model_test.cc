// Proves on the real SmolLM2-135M-Instruct (Q4_1) that greedy tokens equal llama.cpp's and that
// decoding, prefill in one go and a batch of 8 give the same bits. Skipped when demo.sh has not put
// the model into PACKSTONE_MODELS_DIR.
#include <gtest/gtest.h>

#include "packstone/model/generate.h"

namespace packstone {
namespace {

const std::vector<std::int32_t> kPrompt = {504, 28807, 4660, 4837, 6966, 314};

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path =
        std::filesystem::path(PACKSTONE_MODELS_DIR) / "SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    auto checkpoint = open_checkpoint(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    auto model = Model::load(std::move(*checkpoint), pool_);
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::make_unique<Model>(std::move(*model));
  }

  std::size_t vocab() const { return static_cast<std::size_t>(model_->config().vocab); }

  ThreadPool pool_{2};
  std::unique_ptr<Model> model_;
};

// The ids of llama.cpp b11434, llama-cpp-python and ik_llama.cpp for "The GNU General Public
// License is".
TEST_F(SmolLm2, GreedyTokensEqualLlamaCpp) {
  const std::vector<std::int32_t> expected = {
      253, 1603, 29,  10291, 3904, 338, 9605, 260,  1904, 284, 1440, 2257, 3197, 28807, 5265, 30,
      657, 314,  260, 3995,  1440, 29,  7032, 3197, 1391, 281, 260,  905,  30,   198,   198,  504};
  GenerateOptions options;
  options.tokens_max = 32;
  const auto result = generate(*model_, kPrompt, model_->config().vocab, options, {}, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, expected);
}

TEST_F(SmolLm2, DecodePrefillAndBatchGiveTheSameBits) {
  auto prefill_cache = model_->new_cache(16).value();
  KvCache* prefill[] = {prefill_cache.get()};
  std::vector<BatchRow> rows;
  for (std::size_t i = 0; i < kPrompt.size(); ++i)
    rows.push_back({kPrompt[i], static_cast<std::int64_t>(i), 0, true});
  std::vector<float> once(rows.size() * vocab());
  ASSERT_TRUE(model_->forward(rows, prefill, once));

  // Sequence 0 token by token, among seven others that hold other tokens.
  std::vector<std::unique_ptr<KvCache>> owned;
  std::vector<KvCache*> caches;
  for (int s = 0; s < 8; ++s)
    caches.push_back(owned.emplace_back(model_->new_cache(16).value()).get());
  auto alone_cache = model_->new_cache(16).value();
  KvCache* alone[] = {alone_cache.get()};
  std::vector<float> batch_logits(8 * vocab()), logits(vocab());
  for (std::size_t i = 0; i < kPrompt.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    std::vector<BatchRow> batch;
    for (std::int32_t s = 0; s < 8; ++s) batch.push_back({kPrompt[i] + 11 * s, position, s, true});
    ASSERT_TRUE(model_->forward(batch, caches, batch_logits));
    const BatchRow row{kPrompt[i], position, 0, true};
    ASSERT_TRUE(model_->forward({&row, 1}, alone, logits));
    const float* expected = once.data() + i * vocab();
    EXPECT_EQ(std::memcmp(expected, logits.data(), vocab() * sizeof(float)), 0) << "position " << i;
    EXPECT_EQ(std::memcmp(expected, batch_logits.data(), vocab() * sizeof(float)), 0)
        << "position " << i;
  }
}

}  // namespace
}  // namespace packstone
