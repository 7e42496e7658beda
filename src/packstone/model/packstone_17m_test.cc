// Proves on models/packstone-17m, with the tokenizer of its folder, that the perplexity of its
// held-out text is the one that transformers computes in float32 (tools/train_model/compare.py).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "packstone/model/evaluate.h"
#include "packstone/text/tokenizer.h"

namespace packstone {
namespace {

constexpr double kPerplexity = 7.063393;  // first 4096 tokens, windows of 512
constexpr double kTolerance = 1e-4;       // relative

TEST(Packstone17m, PerplexityOfTheHeldOutTextEqualsTransformers) {
  const auto folder = std::filesystem::path(PACKSTONE_SOURCE_DIR) / "models" / "packstone-17m";
  auto checkpoint = open_checkpoint(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->problems.empty());
  EXPECT_TRUE(checkpoint->unbound.empty());
  EXPECT_EQ(checkpoint->parameters(), 16'781'824);
  for (const CheckpointTensor& tensor : checkpoint->tensors)
    EXPECT_EQ(tensor.shape.back() % 256, 0) << tensor.name;

  const auto tokenizer =
      Tokenizer::from_json(checkpoint->tokenizer_json_text, checkpoint->tokenizer_config_text);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::ifstream file(folder / "heldout.txt", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::int32_t> tokens = tokenizer->encode(text);
  EXPECT_EQ(tokens.size(), 121'218u);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  ASSERT_GT(tokens.size(), 4096u);
  tokens.resize(4096);

  ThreadPool pool(2);
  auto model = Model::load(std::move(*checkpoint), pool);
  ASSERT_TRUE(model) << model.error().message;
  const auto result = perplexity(*model, tokens);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->windows, 8);
  EXPECT_NEAR(result->ppl / kPerplexity, 1, kTolerance) << result->ppl;
}

}  // namespace
}  // namespace packstone
