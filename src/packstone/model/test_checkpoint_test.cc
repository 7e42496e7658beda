// Proves that the checkpoints which the other tests build are complete: each one loads.
#include "packstone/model/test_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "packstone/model/model.h"

namespace packstone::testing {
namespace {

bool is_gemma(Architecture a) {
  return a == Architecture::kGemma2 || a == Architecture::kGemma3;
}

class Filler {
 public:
  Filler(Checkpoint& checkpoint, std::uint32_t seed) : checkpoint_(checkpoint), random_(seed) {}

  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, float gain = 1.5f) {
    std::normal_distribution<float> normal(0.0f, gain / std::sqrt(static_cast<float>(cols)));
    add_tensor(checkpoint_, name, rows, cols, draw(rows * cols, normal));
  }
  void vector(const std::string& name, std::int64_t size, float low, float high) {
    std::uniform_real_distribution<float> uniform(low, high);
    add_tensor(checkpoint_, name, 1, size, draw(size, uniform), true);
  }

 private:
  template <class Distribution>
  std::vector<float> draw(std::int64_t count, Distribution& distribution) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = distribution(random_);
    return values;
  }
  Checkpoint& checkpoint_;
  std::mt19937 random_;
};

void fill_layer(Filler& fill, const ModelConfig& c, const std::string& p) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const float base = is_gemma(c.architecture) ? 0.0f : 1.0f;
  const auto norm = [&](const std::string& name, std::int64_t size) {
    fill.vector(p + name + ".weight", size, base - 0.4f, base + 0.4f);
  };
  norm("input_layernorm", c.hidden);
  norm("post_attention_layernorm", c.hidden);
  if (is_gemma(c.architecture)) {
    norm("pre_feedforward_layernorm", c.hidden);
    norm("post_feedforward_layernorm", c.hidden);
  }
  if (c.architecture == Architecture::kQwen3 || c.architecture == Architecture::kGemma3) {
    norm("self_attn.q_norm", c.head_dim);
    norm("self_attn.k_norm", c.head_dim);
  }
  const auto linear = [&](const std::string& name, std::int64_t rows, std::int64_t cols,
                          bool bias) {
    fill.matrix(p + name + ".weight", rows, cols);
    if (bias) fill.vector(p + name + ".bias", rows, -0.5f, 0.5f);
  };
  linear("self_attn.q_proj", q, c.hidden, c.qkv_bias);
  linear("self_attn.k_proj", kv, c.hidden, c.qkv_bias);
  linear("self_attn.v_proj", kv, c.hidden, c.qkv_bias);
  linear("self_attn.o_proj", c.hidden, q, c.o_bias);
  linear("mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias);
  linear("mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias);
  linear("mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias);
}

}  // namespace

ModelConfig tiny_config(Architecture architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.hidden = 64;
  c.layers = 2;
  c.intermediate = 96;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.vocab = 96;
  c.context = 512;
  c.query_scale = 0.25;
  c.qkv_bias = architecture == Architecture::kQwen2;
  c.tied_embeddings = architecture != Architecture::kMistral;
  if (is_gemma(architecture)) {
    c.sliding_window = 7;
    c.sliding_layers = {true, false};
  }
  if (architecture == Architecture::kGemma2) {
    c.attention_softcap = 3.0;
    c.final_softcap = 5.0;
  }
  return c;
}

void add_tensor(Checkpoint& checkpoint, const std::string& name, std::int64_t rows,
                std::int64_t cols, std::vector<float> values, bool is_vector) {
  auto owner = std::make_shared<std::vector<float>>(std::move(values));
  const ByteSpan bytes = std::as_bytes(std::span(*owner));
  auto weight = PackedWeight::bind(kFloat32, {rows, cols}, {}, {bytes}, owner, name);
  ASSERT_TRUE(weight) << weight.error().message;
  CheckpointTensor tensor{
      .name = name, .stored_name = name, .shape = {}, .weight = *weight, .parts = {}};
  tensor.shape =
      is_vector ? std::vector<std::int64_t>{cols} : std::vector<std::int64_t>{rows, cols};
  checkpoint.index[name] = checkpoint.tensors.size();
  checkpoint.tensors.push_back(std::move(tensor));
}

Checkpoint random_checkpoint(const ModelConfig& config, std::uint32_t seed) {
  Checkpoint checkpoint;
  checkpoint.path = "memory";
  checkpoint.config = config;
  Filler fill(checkpoint, seed);
  const float base = is_gemma(config.architecture) ? 0.0f : 1.0f;
  fill.matrix("model.embed_tokens.weight", config.vocab, config.hidden);
  if (!config.tied_embeddings) fill.matrix("lm_head.weight", config.vocab, config.hidden);
  fill.vector("model.norm.weight", config.hidden, base - 0.4f, base + 0.4f);
  for (std::int64_t i = 0; i < config.layers; ++i)
    fill_layer(fill, config, "model.layers." + std::to_string(i) + ".");
  return checkpoint;
}

Checkpoint forced_checkpoint(const std::vector<std::int32_t>& next, std::int64_t head_rows,
                             bool negative) {
  ModelConfig c = tiny_config(Architecture::kMistral);
  const auto tokens = static_cast<std::int64_t>(next.size());
  c.layers = 1;
  c.vocab = head_rows;
  Checkpoint checkpoint = random_checkpoint(c, 1);
  const std::int64_t n = c.hidden;
  // With these two zero the layer adds nothing: the state is the embedding e_{t}, its norm 8 e_{t}.
  const auto zero = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    add_tensor(checkpoint, name, rows, cols,
               std::vector<float>(static_cast<std::size_t>(rows * cols)));
  };
  zero("model.layers.0.self_attn.o_proj.weight", n, c.heads * c.head_dim);
  zero("model.layers.0.mlp.down_proj.weight", n, c.intermediate);
  std::vector<float> embedding(static_cast<std::size_t>(head_rows * n));
  std::vector<float> head(static_cast<std::size_t>(head_rows * n));
  for (std::int64_t t = 0; t < tokens; ++t) {
    embedding[static_cast<std::size_t>(t * n + t)] = 1.0f;
    for (std::int64_t row = 0; row < tokens; ++row) {
      const bool wanted = next[static_cast<std::size_t>(t)] == row;
      const float value = negative ? (wanted ? -1.0f : -3.0f) : (wanted ? 3.0f : 0.0f);
      head[static_cast<std::size_t>(row * n + t)] = value;
    }
  }
  add_tensor(checkpoint, "model.embed_tokens.weight", head_rows, n, std::move(embedding));
  add_tensor(checkpoint, "lm_head.weight", head_rows, n, std::move(head));
  add_tensor(checkpoint, "model.norm.weight", 1, n,
             std::vector<float>(static_cast<std::size_t>(n), 1.0f), true);
  return checkpoint;
}

TEST(TestCheckpoint, EveryArchitectureLoads) {
  ThreadPool pool(1);
  for (const Architecture architecture : kAllArchitectures) {
    auto model = Model::load(random_checkpoint(tiny_config(architecture), 3), pool);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_GT(model->weight_bytes(), 0u);
    EXPECT_FALSE(model->kernel_names().empty());
  }
}

}  // namespace packstone::testing
