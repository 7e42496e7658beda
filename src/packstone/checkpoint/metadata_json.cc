#include <cmath>
#include <set>

#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/names.h"
#include "packstone/checkpoint/quantization_writer.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.folder_config";

std::string_view class_name(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "LlamaForCausalLM";
    case Architecture::kMistral:
      return "MistralForCausalLM";
    case Architecture::kQwen2:
      return "Qwen2ForCausalLM";
    case Architecture::kQwen3:
      return "Qwen3ForCausalLM";
    case Architecture::kGemma2:
      return "Gemma2ForCausalLM";
    case Architecture::kGemma3:
      return "Gemma3ForCausalLM";
  }
  return "";
}

// One id, or an array of several.
Json token_json(const std::vector<std::int64_t>& ids) {
  if (ids.size() == 1) return ids[0];
  return ids;
}

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json rope_json(const RopeScaling& rope) {
  if (rope.kind == RopeKind::kNone) return nullptr;
  const char* kind = rope.kind == RopeKind::kLinear   ? "linear"
                     : rope.kind == RopeKind::kLlama3 ? "llama3"
                                                      : "yarn";
  // Readers differ in which of the two keys they know.
  Json json = {{"rope_type", kind}, {"type", kind}, {"factor", rope.factor}};
  if (rope.kind == RopeKind::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.kind != RopeKind::kLinear)
    json["original_max_position_embeddings"] = rope.original_context;
  if (rope.kind == RopeKind::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  }
  return json;
}

Json layer_types(const ModelConfig& config) {
  Json types = Json::array();
  for (const bool slides : config.sliding_layers)
    types.push_back(slides ? "sliding_attention" : "full_attention");
  return types;
}

// query_scale is a power -1/2: whole numbers are written as such.
Json query_scalar(double scale) {
  const double scalar = 1.0 / (scale * scale);
  const double whole = std::round(scalar);
  if (std::abs(scalar - whole) < 1e-6 * scalar) return static_cast<std::int64_t>(whole);
  return scalar;
}

Status add_gemma(const ModelConfig& config, Json& json) {
  json["query_pre_attn_scalar"] = query_scalar(config.query_scale);
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["attn_logit_softcapping"] = optional_number(config.attention_softcap);
  json["final_logit_softcapping"] = optional_number(config.final_softcap);
  // Without a window every layer is global: a window of the whole context says the same.
  const bool slides = config.sliding_window > 0;
  json["sliding_window"] = slides ? config.sliding_window : config.context;
  if (slides) json["layer_types"] = layer_types(config);
  if (config.architecture != Architecture::kGemma3) return {};
  json["rope_local_base_freq"] = slides ? config.rope_local_theta : config.rope_theta;
  const std::int64_t period = slides ? sliding_period(config.sliding_layers) : 1;
  if (period == 0)
    return fail(ErrorCode::kUnsupported, kWhere, "'sliding_window_pattern'",
                "an irregular order of sliding layers", "every nth layer global");
  json["sliding_window_pattern"] = period;
  return {};
}

// config.json from the numbers alone.
Result<Json> made_config(const ModelConfig& config) {
  Json json;
  json["architectures"] = {class_name(config.architecture)};
  json["model_type"] = architecture_name(config.architecture);
  json["vocab_size"] = config.vocab;
  json["hidden_size"] = config.hidden;
  json["intermediate_size"] = config.intermediate;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.context;
  json["rms_norm_eps"] = config.rms_eps;
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = rope_json(config.rope);
  if (config.bos) json["bos_token_id"] = *config.bos;
  if (!config.eos.empty()) json["eos_token_id"] = token_json(config.eos);
  const bool gemma = gguf_norms_plus_one(config.architecture);
  json["hidden_act"] = gemma ? "gelu_pytorch_tanh" : "silu";
  if (gemma) {
    json["attention_bias"] = config.qkv_bias;
    PACKSTONE_CHECK_OK(add_gemma(config, json));
    return json;
  }
  const bool qwen2 = config.architecture == Architecture::kQwen2;
  if (qwen2 ? !config.qkv_bias || config.o_bias : config.qkv_bias != config.o_bias)
    return fail(ErrorCode::kUnsupported, kWhere, "'attention_bias'",
                fmt::format("biases of q, k, v: {}, of o: {}", config.qkv_bias, config.o_bias),
                qwen2 ? "those of q, k, v alone" : "both or none");
  if (!qwen2) json["attention_bias"] = config.qkv_bias;
  if (config.architecture == Architecture::kLlama) json["mlp_bias"] = config.mlp_bias;
  if (!config.sliding_layers.empty()) {
    json["sliding_window"] = config.sliding_window;
    json["layer_types"] = layer_types(config);
    json["use_sliding_window"] = true;
  }
  return json;
}

// The text model's keys of a multimodal wrapper, with what its class defaults made explicit.
Result<Json> unwrapped_config(const Checkpoint& source, MetadataReport& report) {
  Json json = text_config_of(source.config_json);
  PACKSTONE_TRY(const Json made, made_config(source.config));
  for (const auto& [key, value] : made.items())
    if (!json.contains(key)) json[key] = value;
  json["architectures"] = made["architectures"];
  json["model_type"] = made["model_type"];
  if (made.contains("eos_token_id")) json["eos_token_id"] = made["eos_token_id"];
  for (const auto& [key, value] : source.config_json.items())
    if (key != "text_config" && !json.contains(key))
      report.not_carried.push_back(fmt::format("config.json: {}", key));
  return json;
}

// Keys of a GGUF file that config.json, its companions or the tensors themselves express.
bool key_has_place(std::string_view key, std::string_view architecture) {
  static const std::set<std::string_view> kGeneral = {
      "general.architecture",   "general.type",      "general.name",
      "general.file_type",      "general.alignment", "general.quantization_version",
      "tokenizer.chat_template"};
  static const std::set<std::string_view> kModel = {"block_count",
                                                    "context_length",
                                                    "embedding_length",
                                                    "feed_forward_length",
                                                    "vocab_size",
                                                    "attention.head_count",
                                                    "attention.head_count_kv",
                                                    "attention.key_length",
                                                    "attention.value_length",
                                                    "attention.layer_norm_rms_epsilon",
                                                    "attention.sliding_window",
                                                    "attention.sliding_window_pattern",
                                                    "attention.scale",
                                                    "attention.key_length_swa",
                                                    "attention.value_length_swa",
                                                    "rope.freq_base",
                                                    "rope.freq_base_swa",
                                                    "rope.dimension_count",
                                                    "rope.dimension_count_swa",
                                                    "rope.scaling.type",
                                                    "rope.scaling.factor",
                                                    "rope.scale_linear",
                                                    "rope.scaling.original_context_length",
                                                    "rope.scaling.attn_factor",
                                                    "rope.scaling.yarn_beta_fast",
                                                    "rope.scaling.yarn_beta_slow",
                                                    "rope.llama3.factor",
                                                    "rope.llama3.low_freq_factor",
                                                    "rope.llama3.high_freq_factor",
                                                    "rope.llama3.original_context_length",
                                                    "attn_logit_softcapping",
                                                    "final_logit_softcapping"};
  static const std::set<std::string_view> kTokenizer = {"model",
                                                        "pre",
                                                        "tokens",
                                                        "scores",
                                                        "token_type",
                                                        "merges",
                                                        "bos_token_id",
                                                        "eos_token_id",
                                                        "eot_token_id",
                                                        "eom_token_id",
                                                        "unknown_token_id",
                                                        "seperator_token_id",
                                                        "padding_token_id",
                                                        "mask_token_id",
                                                        "add_bos_token",
                                                        "add_eos_token",
                                                        "add_space_prefix"};
  if (kGeneral.contains(key)) return true;
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  if (key.starts_with(kPrefix)) return kTokenizer.contains(key.substr(kPrefix.size()));
  if (key.starts_with(architecture) && key.substr(architecture.size()).starts_with('.'))
    return kModel.contains(key.substr(architecture.size() + 1));
  return false;
}

// The float type of a packed tensor's scales, where they are floats.
std::optional<FloatType> scale_type(const OutputTensor& tensor) {
  for (const ParamSpec& spec : format_info(tensor.format).params) {
    if (spec.coding == ParamCoding::kMetadata) return tensor.params.metadata;
    if (spec.coding == ParamCoding::kF16) return FloatType::kF16;
  }
  return std::nullopt;
}

// transformers' name of the float type that most tensors are stored or scaled in.
std::string_view common_float(const std::vector<OutputTensor>& tensors) {
  constexpr std::string_view kNames[] = {"float32", "float16", "bfloat16"};
  std::array<std::size_t, 3> counts{};
  for (const OutputTensor& tensor : tensors) {
    if (tensor.shape.size() < 2) continue;
    if (const auto type = scale_type(tensor)) ++counts[static_cast<std::size_t>(*type)];
    for (std::size_t i = 0; i < 3; ++i)
      if (format_info(tensor.format).name == kNames[i]) ++counts[i];
  }
  const auto largest = std::max_element(counts.begin(), counts.end()) - counts.begin();
  return kNames[static_cast<std::size_t>(largest)];
}

}  // namespace

Result<Json> folder_config(const Checkpoint& source, const OutputFacts& facts,
                           MetadataReport& report) {
  Json json;
  if (source.container == ContainerKind::kGguf) {
    PACKSTONE_TRY(json, made_config(source.config));
    json["torch_dtype"] = common_float(*facts.tensors);
    PACKSTONE_TRY(const auto name, source.gguf.text("general.name"));
    if (name) json["_name_or_path"] = *name;
    for (const GgufKey& key : source.gguf.keys)
      if (!key_has_place(key.name, gguf_architecture_name(source.config.architecture)))
        report.not_carried.push_back(key.name);
  } else if (&text_config_of(source.config_json) != &source.config_json) {
    PACKSTONE_TRY(json, unwrapped_config(source, report));
  } else {
    json = source.config_json;
  }
  json["tie_word_embeddings"] = !facts.head;
  if (!facts.keeps_quantization) {
    for (const char* key : {"quantization", "quantization_config", "compression_config"})
      json.erase(key);
    const Json keys = quantization_keys(*facts.tensors, facts.symmetric);
    for (const auto& [key, block] : keys.items()) json[key] = block;
  }
  return json;
}

Json folder_generation_config(const Checkpoint& source) {
  if (source.container == ContainerKind::kFolder) return source.generation_config_json;
  Json json;
  if (source.config.bos) json["bos_token_id"] = *source.config.bos;
  if (!source.config.eos.empty()) json["eos_token_id"] = token_json(source.config.eos);
  const Result<std::optional<std::int64_t>> padding =
      source.gguf.integer("tokenizer.ggml.padding_token_id");
  if (padding && *padding && **padding >= 0 && **padding < source.config.vocab)
    json["pad_token_id"] = **padding;
  return json;
}

}  // namespace packstone
