#include "packstone/checkpoint/names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <span>

namespace packstone {
namespace {

// An axis of a tensor, as a number of the config.
enum class Axis { kOne, kHidden, kQuery, kKeyValue, kIntermediate, kVocab, kHeadDim };

struct Rule {
  std::string_view name;
  std::string_view gguf_name;
  Axis rows;
  Axis cols;
  Need need = Need::kAlways;
  bool norm = false;
  bool rotary = false;  // rows are turned by the rotary embedding
};

constexpr Rule kEmbedding{"model.embed_tokens.weight", "token_embd.weight", Axis::kVocab,
                          Axis::kHidden};
constexpr Rule kFinalNorm{"model.norm.weight", "output_norm.weight", Axis::kOne,
                          Axis::kHidden,       Need::kAlways,        true};
constexpr Rule kHead{"lm_head.weight", "output.weight", Axis::kVocab, Axis::kHidden, Need::kHead};

// Names within a layer, after "model.layers.N." and "blk.N.".
constexpr std::array kProjections = {
    Rule{"self_attn.q_proj.weight", "attn_q.weight", Axis::kQuery, Axis::kHidden, Need::kAlways,
         false, true},
    Rule{"self_attn.k_proj.weight", "attn_k.weight", Axis::kKeyValue, Axis::kHidden, Need::kAlways,
         false, true},
    Rule{"self_attn.v_proj.weight", "attn_v.weight", Axis::kKeyValue, Axis::kHidden},
    Rule{"self_attn.o_proj.weight", "attn_output.weight", Axis::kHidden, Axis::kQuery},
    Rule{"self_attn.q_proj.bias", "attn_q.bias", Axis::kOne, Axis::kQuery, Need::kQkvBias, false,
         true},
    Rule{"self_attn.k_proj.bias", "attn_k.bias", Axis::kOne, Axis::kKeyValue, Need::kQkvBias, false,
         true},
    Rule{"self_attn.v_proj.bias", "attn_v.bias", Axis::kOne, Axis::kKeyValue, Need::kQkvBias},
    Rule{"self_attn.o_proj.bias", "attn_output.bias", Axis::kOne, Axis::kHidden, Need::kOutBias},
    Rule{"mlp.gate_proj.weight", "ffn_gate.weight", Axis::kIntermediate, Axis::kHidden},
    Rule{"mlp.up_proj.weight", "ffn_up.weight", Axis::kIntermediate, Axis::kHidden},
    Rule{"mlp.down_proj.weight", "ffn_down.weight", Axis::kHidden, Axis::kIntermediate},
    Rule{"mlp.gate_proj.bias", "ffn_gate.bias", Axis::kOne, Axis::kIntermediate, Need::kMlpBias},
    Rule{"mlp.up_proj.bias", "ffn_up.bias", Axis::kOne, Axis::kIntermediate, Need::kMlpBias},
    Rule{"mlp.down_proj.bias", "ffn_down.bias", Axis::kOne, Axis::kHidden, Need::kMlpBias},
};

constexpr Rule norm_rule(std::string_view name, std::string_view gguf_name,
                         Axis cols = Axis::kHidden) {
  return {name, gguf_name, Axis::kOne, cols, Need::kAlways, true};
}

constexpr std::array kTwoNorms = {
    norm_rule("input_layernorm.weight", "attn_norm.weight"),
    norm_rule("post_attention_layernorm.weight", "ffn_norm.weight"),
};
constexpr std::array kFourNorms = {
    norm_rule("input_layernorm.weight", "attn_norm.weight"),
    norm_rule("post_attention_layernorm.weight", "post_attention_norm.weight"),
    norm_rule("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    norm_rule("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
};
constexpr std::array kHeadNorms = {
    norm_rule("self_attn.q_norm.weight", "attn_q_norm.weight", Axis::kHeadDim),
    norm_rule("self_attn.k_norm.weight", "attn_k_norm.weight", Axis::kHeadDim),
};

// The gate's activation and its product with `up` are element-wise in every architecture here.
constexpr std::string_view kDown = "mlp.down_proj.weight";
constexpr std::array<std::string_view, 4> kDownProducers = {
    "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.gate_proj.bias", "mlp.up_proj.bias"};

struct ArchitectureRow {
  Architecture architecture;
  std::string_view model_type;
  std::string_view gguf_name;
  std::span<const Rule> block_norms;
  std::span<const Rule> head_norms;
  bool paired_in_gguf;
  bool plus_one_in_gguf;
};

constexpr std::array kArchitectures = {
    ArchitectureRow{Architecture::kLlama, "llama", "llama", kTwoNorms, {}, true, false},
    ArchitectureRow{Architecture::kMistral, "mistral", "llama", kTwoNorms, {}, true, false},
    ArchitectureRow{Architecture::kQwen2, "qwen2", "qwen2", kTwoNorms, {}, false, false},
    ArchitectureRow{Architecture::kQwen3, "qwen3", "qwen3", kTwoNorms, kHeadNorms, false, false},
    ArchitectureRow{Architecture::kGemma2, "gemma2", "gemma2", kFourNorms, {}, false, true},
    ArchitectureRow{Architecture::kGemma3, "gemma3_text", "gemma3", kFourNorms, kHeadNorms, false,
                    true},
};

const ArchitectureRow& row_of(Architecture architecture) {
  return kArchitectures[static_cast<std::size_t>(architecture)];
}

std::int64_t axis_size(const ModelConfig& config, Axis axis) {
  switch (axis) {
    case Axis::kOne:
      return 1;
    case Axis::kHidden:
      return config.hidden;
    case Axis::kQuery:
      return config.heads * config.head_dim;
    case Axis::kKeyValue:
      return config.kv_heads * config.head_dim;
    case Axis::kIntermediate:
      return config.intermediate;
    case Axis::kVocab:
      return config.vocab;
    case Axis::kHeadDim:
      return config.head_dim;
  }
  return 0;
}

ExpectedTensor make_expected(const ModelConfig& config, const Rule& rule,
                             std::string_view hf_prefix, std::string_view gguf_prefix) {
  ExpectedTensor tensor;
  tensor.name = fmt::format("{}{}", hf_prefix, rule.name);
  tensor.gguf_name = fmt::format("{}{}", gguf_prefix, rule.gguf_name);
  tensor.shape = {axis_size(config, rule.rows), axis_size(config, rule.cols)};
  tensor.vector = rule.rows == Axis::kOne;
  tensor.norm = rule.norm;
  tensor.need = rule.need;
  if (rule.rotary && row_of(config.architecture).paired_in_gguf) {
    const Axis turned = tensor.vector ? rule.cols : rule.rows;
    tensor.paired_heads = turned == Axis::kQuery ? config.heads : config.kv_heads;
  }
  return tensor;
}

}  // namespace

std::string_view architecture_name(Architecture architecture) {
  return row_of(architecture).model_type;
}

std::string_view gguf_architecture_name(Architecture architecture) {
  return row_of(architecture).gguf_name;
}

bool gguf_norms_plus_one(Architecture architecture) {
  return row_of(architecture).plus_one_in_gguf;
}

std::optional<Architecture> gguf_architecture(std::string_view name) {
  for (const ArchitectureRow& row : kArchitectures)
    if (row.gguf_name == name) return row.architecture;
  return std::nullopt;
}

std::optional<Architecture> json_architecture(std::string_view model_type) {
  if (model_type == "gemma3") return Architecture::kGemma3;
  for (const ArchitectureRow& row : kArchitectures)
    if (row.model_type == model_type) return row.architecture;
  return std::nullopt;
}

std::string known_architectures() {
  std::string list;
  for (const ArchitectureRow& row : kArchitectures) {
    if (!list.empty()) list += ", ";
    list += row.model_type;
  }
  return list;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const ArchitectureRow& row = row_of(config.architecture);
  std::vector<ExpectedTensor> list;
  list.push_back(make_expected(config, kEmbedding, "", ""));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string hf_prefix = fmt::format("model.layers.{}.", layer);
    const std::string gguf_prefix = fmt::format("blk.{}.", layer);
    for (const std::span<const Rule> rules :
         {row.block_norms, row.head_norms, std::span<const Rule>(kProjections)})
      for (const Rule& rule : rules)
        list.push_back(make_expected(config, rule, hf_prefix, gguf_prefix));
  }
  list.push_back(make_expected(config, kFinalNorm, "", ""));
  list.push_back(make_expected(config, kHead, "", ""));
  return list;
}

std::vector<ChannelRelation> channel_relations(const ModelConfig& config) {
  std::vector<ChannelRelation> relations;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    ChannelRelation relation{fmt::format("{}{}", prefix, kDown), {}};
    for (const std::string_view producer : kDownProducers)
      relation.producers.push_back(fmt::format("{}{}", prefix, producer));
    relations.push_back(std::move(relation));
  }
  return relations;
}

std::string_view fixed_columns_reason(std::string_view name) {
  if (name.ends_with(kDown)) return {};
  if (name.ends_with("self_attn.o_proj.weight"))
    return "its columns belong to heads, which attention keeps apart";
  return "its columns are the residual stream, which all layers read and write in one order";
}

std::optional<std::int64_t> layer_of(std::string_view name) {
  for (const std::string_view prefix : {"model.layers.", "blk."}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    std::int64_t layer = 0;
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (code == std::errc() && end != rest.data() + rest.size() && *end == '.') return layer;
  }
  return std::nullopt;
}

}  // namespace packstone
