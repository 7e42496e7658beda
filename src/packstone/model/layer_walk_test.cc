// The walk through the layers gives what the model gives: same inputs of the head, bit for bit, and
// replaced matrices count from their place on.
#include "packstone/model/layer_walk.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "packstone/model/test_checkpoint.h"

namespace packstone {
namespace {

using testing::random_checkpoint;
using testing::tiny_config;

const std::vector<std::vector<std::int32_t>> kSequences = {
    {1, 5, 9, 2, 7}, {3, 3, 8}, {11, 4, 6, 0, 2, 9, 1}};

std::vector<float> all_rows(const MatrixView& view) {
  std::vector<float> rows;
  for (std::int64_t i = 0; i < view.rows; ++i)
    rows.insert(rows.end(), view.row(i), view.row(i) + view.cols);
  return rows;
}

// Logits of the last tokens of the sequences, from the inputs of the head.
std::vector<float> head_logits(LayerWalk& walk, const Checkpoint& checkpoint, ThreadPool& pool) {
  const CheckpointTensor* head = checkpoint.find("lm_head.weight");
  if (head == nullptr) head = checkpoint.find("model.embed_tokens.weight");
  const Linear linear = *Linear::prepare(head->weight);
  const MatmulWorkspace workspace(1, linear.shape().cols);
  std::vector<float> logits;
  EXPECT_TRUE(walk.head_inputs([&](const MatrixView& rows) {
    std::vector<float> one(static_cast<std::size_t>(linear.shape().rows));
    linear.run(rows.row(rows.rows - 1), 1, rows.cols, one.data(), linear.shape().rows, pool,
               workspace);
    logits.insert(logits.end(), one.begin(), one.end());
  }));
  return logits;
}

std::vector<float> model_logits(const Checkpoint& checkpoint, ThreadPool& pool) {
  Model model = *Model::load(checkpoint, pool);
  const auto vocab = static_cast<std::size_t>(checkpoint.config.vocab);
  std::vector<float> logits;
  for (const auto& sequence : kSequences) {
    auto cache = *model.new_cache(64);
    std::vector<BatchRow> rows;
    for (const std::int32_t token : sequence)
      rows.push_back({token, static_cast<std::int64_t>(rows.size()), 0, false});
    rows.back().wants_logits = true;
    std::vector<float> one(vocab);
    KvCache* caches[] = {cache.get()};
    EXPECT_TRUE(model.forward(rows, caches, one));
    logits.insert(logits.end(), one.begin(), one.end());
  }
  return logits;
}

TEST(LayerWalk, EndsWhereTheModelEnds) {
  ThreadPool pool(2);
  for (const Architecture architecture :
       {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3, Architecture::kGemma3}) {
    const Checkpoint checkpoint = random_checkpoint(tiny_config(architecture), 7);
    LayerWalk walk = *LayerWalk::make(checkpoint, kSequences, pool);
    EXPECT_EQ(walk.tokens(), 15);
    while (walk.layer() < walk.layers()) ASSERT_TRUE(walk.next_layer());
    EXPECT_EQ(head_logits(walk, checkpoint, pool), model_logits(checkpoint, pool));
  }
}

TEST(LayerWalk, StagesGiveTheInputsOfTheirMatrices) {
  ThreadPool pool(1);
  const Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kLlama), 7);
  const ModelConfig& config = checkpoint.config;
  LayerWalk walk = *LayerWalk::make(checkpoint, kSequences, pool);
  const std::int64_t widths[] = {config.hidden, config.heads * config.head_dim, config.hidden,
                                 config.intermediate};
  for (std::size_t stage = 0; stage < kLayerStages.size(); ++stage) {
    std::int64_t rows = 0;
    ASSERT_TRUE(walk.inputs(kLayerStages[stage], [&](const MatrixView& view) {
      rows += view.rows;
      EXPECT_EQ(view.cols, widths[stage]);
    }));
    EXPECT_EQ(rows, 15);
    EXPECT_FALSE(walk.inputs(kLayerStages[stage], [](const MatrixView&) {}));
    for (const std::string& name : walk.matrices(kLayerStages[stage]))
      EXPECT_EQ(checkpoint.find(name)->weight.shape().cols, widths[stage]) << name;
  }
}

TEST(LayerWalk, ReplacedMatricesCount) {
  ThreadPool pool(1);
  const Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kLlama), 7);
  Checkpoint other = random_checkpoint(tiny_config(Architecture::kLlama), 8);
  const auto down_inputs = [&](LayerWalk& walk) {
    std::vector<float> rows;
    for (const LayerStage stage : kLayerStages)
      EXPECT_TRUE(walk.inputs(stage, [&](const MatrixView& view) {
        if (stage != LayerStage::kFeedForwardOutput) return;
        const auto one = all_rows(view);
        rows.insert(rows.end(), one.begin(), one.end());
      }));
    return rows;
  };
  LayerWalk plain = *LayerWalk::make(checkpoint, kSequences, pool);
  LayerWalk replaced = *LayerWalk::make(checkpoint, kSequences, pool);
  const std::string gate = "model.layers.0.mlp.gate_proj.weight";
  ASSERT_TRUE(replaced.replace(gate, other.find(gate)->weight));
  EXPECT_NE(down_inputs(plain), down_inputs(replaced));
  EXPECT_FALSE(replaced.replace("model.layers.1.mlp.gate_proj.weight", other.find(gate)->weight));
  EXPECT_FALSE(replaced.replace("model.layers.0.mlp.down_proj.weight", other.find(gate)->weight));
}

TEST(LayerWalk, PairsHandOverBothInputsOfATokenTogether) {
  ThreadPool pool(1);
  const Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kLlama), 7);
  LayerWalk first = *LayerWalk::make(checkpoint, kSequences, pool);
  LayerWalk second = *LayerWalk::make(checkpoint, kSequences, pool);
  LayerWalk alone = *LayerWalk::make(checkpoint, kSequences, pool);
  const auto pair = [&](LayerStage stage) {
    return LayerWalk::paired_inputs(first, second, stage,
                                    [&](const MatrixView& wanted, const MatrixView& rows) {
                                      EXPECT_EQ(all_rows(wanted), all_rows(rows));
                                    });
  };
  while (first.layer() < first.layers()) {
    for (const LayerStage stage : kLayerStages) ASSERT_TRUE(pair(stage));
    ASSERT_TRUE(first.next_layer());
    EXPECT_FALSE(pair(LayerStage::kAttentionInput));  // the walks stand apart
    ASSERT_TRUE(second.next_layer());
    ASSERT_TRUE(alone.next_layer());
  }
  std::vector<float> paired, want;
  ASSERT_TRUE(LayerWalk::paired_head_inputs(first, second,
                                            [&](const MatrixView& wanted, const MatrixView& rows) {
                                              EXPECT_EQ(all_rows(wanted), all_rows(rows));
                                              const auto one = all_rows(rows);
                                              paired.insert(paired.end(), one.begin(), one.end());
                                            }));
  ASSERT_TRUE(alone.head_inputs([&](const MatrixView& rows) {
    const auto one = all_rows(rows);
    want.insert(want.end(), one.begin(), one.end());
  }));
  EXPECT_EQ(paired, want);
}

TEST(LayerWalk, Refusals) {
  ThreadPool pool(1);
  const Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kLlama), 7);
  EXPECT_FALSE(LayerWalk::make(checkpoint, {}, pool));
  EXPECT_FALSE(LayerWalk::make(checkpoint, {{}}, pool));
  EXPECT_FALSE(LayerWalk::make(checkpoint, {{1, -1}}, pool));
  EXPECT_FALSE(
      LayerWalk::make(checkpoint, {{static_cast<std::int32_t>(checkpoint.config.vocab)}}, pool));
  LayerWalk walk = *LayerWalk::make(checkpoint, {{1}}, pool);
  EXPECT_FALSE(walk.head_inputs([](const MatrixView&) {}));
}

// A probe shows what the stages then get, and leaves the walk where it is.
TEST(LayerWalk, AProbeShowsTheInputsOfAllStages) {
  const Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kLlama), 9);
  ThreadPool pool(2);
  LayerWalk walk = *LayerWalk::make(checkpoint, kSequences, pool);
  std::map<LayerStage, std::vector<float>> shown;
  ASSERT_TRUE(walk.probe(99, [&](LayerStage stage, const MatrixView& rows) {
    const std::vector<float> more = all_rows(rows);
    shown[stage].insert(shown[stage].end(), more.begin(), more.end());
  }));
  for (const LayerStage stage : kLayerStages) {
    std::vector<float> seen;
    ASSERT_TRUE(walk.inputs(stage, [&](const MatrixView& rows) {
      const std::vector<float> more = all_rows(rows);
      seen.insert(seen.end(), more.begin(), more.end());
    }));
    EXPECT_EQ(shown[stage], seen);
  }
  EXPECT_FALSE(walk.probe(1, [](LayerStage, const MatrixView&) {}));
}

// Inputs follow the factors of the norm before them.
TEST(LayerWalk, ANormThatIsSetCounts) {
  const Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kLlama), 9);
  ThreadPool pool(1);
  LayerWalk walk = *LayerWalk::make(checkpoint, kSequences, pool);
  std::vector<float> before, after;
  ASSERT_TRUE(walk.probe(1, [&](LayerStage stage, const MatrixView& rows) {
    if (stage == LayerStage::kAttentionInput) before = all_rows(rows);
  }));
  std::vector<float> factors(walk.norm(LayerStage::kAttentionInput).begin(),
                             walk.norm(LayerStage::kAttentionInput).end());
  for (float& factor : factors) factor *= 2;
  walk.set_norm(LayerStage::kAttentionInput, factors);
  EXPECT_TRUE(walk.norm(LayerStage::kAttentionOutput).empty());
  ASSERT_TRUE(walk.probe(1, [&](LayerStage stage, const MatrixView& rows) {
    if (stage == LayerStage::kAttentionInput) after = all_rows(rows);
  }));
  for (float& value : before) value *= 2;
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace packstone
