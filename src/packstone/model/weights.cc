#include "packstone/model/weights.h"

namespace packstone {
namespace {

class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const DecoderRecipe& recipe)
      : checkpoint_(checkpoint), config_(checkpoint.config), recipe_(recipe) {}

  Result<DecoderWeights> bind();

 private:
  Result<const CheckpointTensor*> find(const std::string& name, std::int64_t rows,
                                       std::int64_t cols);
  Result<Linear> matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  Result<std::vector<float>> vector(const std::string& name, std::int64_t size);
  Result<std::vector<float>> norm(const std::string& name, std::int64_t size);
  Result<BoundLinear> linear(const std::string& prefix, std::int64_t rows, std::int64_t cols,
                             bool has_bias);
  Result<LayerWeights> layer(std::int64_t index);
  Status norms(const std::string& prefix, LayerWeights& layer);

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const DecoderRecipe& recipe_;
};

Result<const CheckpointTensor*> Binder::find(const std::string& name, std::int64_t rows,
                                             std::int64_t cols) {
  const CheckpointTensor* tensor = checkpoint_.find(name);
  const std::string subject = fmt::format("{}: '{}'", checkpoint_.path.string(), name);
  if (tensor == nullptr)
    return fail(ErrorCode::kCorruptData, "model.load", subject, "no such tensor",
                fmt::format("[{}, {}]", rows, cols),
                "the checkpoint is incomplete or its config names another architecture");
  const Shape shape = tensor->weight.shape();
  if (shape.rows != rows || shape.cols != cols)
    return fail(ErrorCode::kCorruptData, "model.load", subject,
                fmt::format("[{}, {}]", shape.rows, shape.cols),
                fmt::format("[{}, {}]", rows, cols), "the tensor does not fit the config");
  return tensor;
}

Result<Linear> Binder::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  PACKSTONE_TRY(const CheckpointTensor* tensor, find(name, rows, cols));
  if (tensor->value_rule != ValueRule::kSame)
    return fail(ErrorCode::kUnsupported, "model.load", name, "a matrix stored with an offset",
                "none");
  LinearOptions options;
  options.stored_rows = tensor->stored_rows();
  return Linear::prepare(tensor->weight, std::move(options));
}

Result<std::vector<float>> Binder::vector(const std::string& name, std::int64_t size) {
  PACKSTONE_TRY(const CheckpointTensor* tensor, find(name, 1, size));
  PACKSTONE_TRY(const Linear row, Linear::prepare(tensor->weight));
  std::vector<float> values(static_cast<std::size_t>(size));
  const std::int32_t first = 0;
  row.gather({&first, 1}, values.data());
  const std::vector<std::int32_t> order = tensor->stored_rows();
  if (order.empty()) return values;
  if (order.size() != values.size())
    return fail(ErrorCode::kCorruptData, "model.load", name,
                fmt::format("a row order of {}", order.size()), fmt::to_string(values.size()));
  std::vector<float> ordered(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ordered[i] = values[static_cast<std::size_t>(order[i])];
  return ordered;
}

Result<std::vector<float>> Binder::norm(const std::string& name, std::int64_t size) {
  PACKSTONE_TRY(std::vector<float> values, vector(name, size));
  const bool stored_plus_one = checkpoint_.find(name)->value_rule == ValueRule::kPlusOne;
  if (recipe_.norm_plus_one && !stored_plus_one)
    for (float& value : values) value = 1.0f + value;
  if (!recipe_.norm_plus_one && stored_plus_one)
    for (float& value : values) value -= 1.0f;
  return values;
}

Result<BoundLinear> Binder::linear(const std::string& prefix, std::int64_t rows, std::int64_t cols,
                                   bool has_bias) {
  BoundLinear bound;
  PACKSTONE_TRY(bound.matrix, matrix(prefix + ".weight", rows, cols));
  if (has_bias) {
    PACKSTONE_TRY(bound.bias, vector(prefix + ".bias", rows));
  }
  return bound;
}

Status Binder::norms(const std::string& prefix, LayerWeights& layer) {
  const auto named = [&](std::string_view name, std::vector<float>& target) -> Status {
    if (name.empty()) return {};
    PACKSTONE_TRY(target, norm(fmt::format("{}{}.weight", prefix, name), config_.hidden));
    return {};
  };
  PACKSTONE_CHECK_OK(named(recipe_.attention_norm, layer.attention_norm));
  PACKSTONE_CHECK_OK(named(recipe_.post_attention_norm, layer.post_attention_norm));
  PACKSTONE_CHECK_OK(named(recipe_.ffn_norm, layer.ffn_norm));
  PACKSTONE_CHECK_OK(named(recipe_.post_ffn_norm, layer.post_ffn_norm));
  if (recipe_.qk_norm) {
    PACKSTONE_TRY(layer.q_norm, norm(prefix + "self_attn.q_norm.weight", config_.head_dim));
    PACKSTONE_TRY(layer.k_norm, norm(prefix + "self_attn.k_norm.weight", config_.head_dim));
  }
  return {};
}

Result<LayerWeights> Binder::layer(std::int64_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::int64_t hidden = config_.hidden, inner = config_.intermediate;
  const std::int64_t q_rows = config_.heads * config_.head_dim;
  const std::int64_t kv_rows = config_.kv_heads * config_.head_dim;
  LayerWeights layer;
  PACKSTONE_CHECK_OK(norms(prefix, layer));
  PACKSTONE_TRY(layer.q, linear(prefix + "self_attn.q_proj", q_rows, hidden, config_.qkv_bias));
  PACKSTONE_TRY(layer.k, linear(prefix + "self_attn.k_proj", kv_rows, hidden, config_.qkv_bias));
  PACKSTONE_TRY(layer.v, linear(prefix + "self_attn.v_proj", kv_rows, hidden, config_.qkv_bias));
  PACKSTONE_TRY(layer.o, linear(prefix + "self_attn.o_proj", hidden, q_rows, config_.o_bias));
  PACKSTONE_TRY(layer.gate, linear(prefix + "mlp.gate_proj", inner, hidden, config_.mlp_bias));
  PACKSTONE_TRY(layer.up, linear(prefix + "mlp.up_proj", inner, hidden, config_.mlp_bias));
  PACKSTONE_TRY(layer.down, linear(prefix + "mlp.down_proj", hidden, inner, config_.mlp_bias));
  return layer;
}

Result<DecoderWeights> Binder::bind() {
  DecoderWeights weights;
  PACKSTONE_TRY(weights.embedding,
                matrix("model.embed_tokens.weight", config_.vocab, config_.hidden));
  if (!config_.tied_embeddings) {
    PACKSTONE_TRY(weights.separate_head, matrix("lm_head.weight", config_.vocab, config_.hidden));
  }
  PACKSTONE_TRY(weights.final_norm, norm("model.norm.weight", config_.hidden));
  for (std::int64_t index = 0; index < config_.layers; ++index) {
    PACKSTONE_TRY(LayerWeights bound, layer(index));
    weights.layers.push_back(std::move(bound));
  }
  return weights;
}

}  // namespace

Result<DecoderWeights> bind_weights(const Checkpoint& checkpoint, const DecoderRecipe& recipe) {
  return Binder(checkpoint, recipe).bind();
}

}  // namespace packstone
