#include <cmath>

#include "packstone/base/limits.h"
#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/names.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
namespace bounds = config_limits;
constexpr std::string_view kWhere = "checkpoint.config_json";

bool is_gemma(Architecture architecture) {
  return architecture == Architecture::kGemma2 || architecture == Architecture::kGemma3;
}

// A key that must be there, unless `missing` stands in for it.
Result<std::int64_t> required(const JsonReader& json, std::string_view key, std::int64_t high,
                              std::optional<std::int64_t> missing = {}) {
  PACKSTONE_TRY(const std::optional<std::int64_t> value, json.integer(key, 1, high));
  if (value) return *value;
  if (missing) return *missing;
  return json.error(ErrorCode::kCorruptData, key, "no such key", "an integer");
}

Result<double> number_or(const JsonReader& json, std::string_view key, double low, double high,
                         double missing) {
  PACKSTONE_TRY(const std::optional<double> value, json.number(key, low, high));
  return value.value_or(missing);
}

// The sizes of the model. A multimodal wrapper's text_config may leave out its class's defaults.
Status read_sizes(const JsonReader& json, bool wrapped, ModelConfig& config) {
  const auto wrapper_default = [&](std::int64_t value) {
    return wrapped ? std::optional(value) : std::nullopt;
  };
  PACKSTONE_TRY(config.hidden, required(json, "hidden_size", bounds::kHiddenMax));
  PACKSTONE_TRY(config.layers, required(json, "num_hidden_layers", limits::kLayersMax));
  PACKSTONE_TRY(config.intermediate, required(json, "intermediate_size", bounds::kIntermediateMax));
  PACKSTONE_TRY(config.heads,
                required(json, "num_attention_heads", bounds::kHeadsMax, wrapper_default(8)));
  const bool gemma3 = config.architecture == Architecture::kGemma3;
  PACKSTONE_TRY(config.kv_heads,
                required(json, "num_key_value_heads", bounds::kHeadsMax,
                         gemma3 ? wrapper_default(4) : std::optional(config.heads)));
  PACKSTONE_TRY(config.vocab,
                required(json, "vocab_size", limits::kVocabularyMax, wrapper_default(262208)));
  PACKSTONE_TRY(config.context, required(json, "max_position_embeddings", limits::kContextMax,
                                         gemma3 ? std::optional<std::int64_t>(131072)
                                                : std::optional<std::int64_t>(32768)));
  std::optional<std::int64_t> head_dim;
  if (is_gemma(config.architecture))
    head_dim = 256;
  else if (config.hidden % config.heads == 0)
    head_dim = config.hidden / config.heads;
  PACKSTONE_TRY(config.head_dim, required(json, "head_dim", bounds::kHeadDimMax, head_dim));
  if (config.heads % config.kv_heads != 0)
    return json.error(ErrorCode::kCorruptData, "num_key_value_heads",
                      std::to_string(config.kv_heads),
                      fmt::format("a divisor of num_attention_heads {}", config.heads));
  if (config.head_dim % 2 != 0)
    return json.error(ErrorCode::kCorruptData, "head_dim", std::to_string(config.head_dim),
                      "an even number");
  PACKSTONE_TRY(const std::optional<double> eps, json.number("rms_norm_eps", 1e-15, 1.0));
  if (!eps && !gemma3)
    return json.error(ErrorCode::kCorruptData, "rms_norm_eps", "no such key", "a number");
  config.rms_eps = eps.value_or(1e-6);
  return {};
}

Status read_yarn(const JsonReader& json, RopeScaling& rope) {
  PACKSTONE_TRY(rope.beta_fast, number_or(json, "beta_fast", 1e-3, 1e6, 32.0));
  PACKSTONE_TRY(rope.beta_slow, number_or(json, "beta_slow", 1e-3, 1e6, 1.0));
  PACKSTONE_TRY(rope.mscale, number_or(json, "mscale", 0.0, 1e3, 1.0));
  PACKSTONE_TRY(rope.mscale_all_dim, number_or(json, "mscale_all_dim", 0.0, 1e3, 0.0));
  PACKSTONE_TRY(rope.attention_factor, json.number("attention_factor", 1e-3, 1e3));
  PACKSTONE_TRY(const std::optional<bool> truncate, json.boolean("truncate"));
  if (truncate == false)
    return json.error(ErrorCode::kUnsupported, "truncate", "false", "true or absent");
  return {};
}

// One rope_scaling or rope_parameters object. Both spellings of the kind are read.
Status read_scaling(const JsonReader& json, const ModelConfig& config, RopeScaling& rope) {
  PACKSTONE_TRY(const std::optional<std::string> new_kind, json.text("rope_type"));
  PACKSTONE_TRY(const std::optional<std::string> old_kind, json.text("type"));
  if (new_kind && old_kind && *new_kind != *old_kind)
    return json.error(ErrorCode::kCorruptData, "rope_type", *new_kind, *old_kind,
                      "the keys 'rope_type' and 'type' disagree");
  const std::string kind = new_kind ? *new_kind : old_kind.value_or("default");
  if (kind == "default") return {};
  if (kind == "linear")
    rope.kind = RopeKind::kLinear;
  else if (kind == "llama3")
    rope.kind = RopeKind::kLlama3;
  else if (kind == "yarn")
    rope.kind = RopeKind::kYarn;
  else
    return json.error(ErrorCode::kUnsupported, new_kind ? "rope_type" : "type", kind,
                      "default, linear, llama3 or yarn");
  PACKSTONE_TRY(const std::optional<double> factor,
                json.number("factor", bounds::kFactorMin, bounds::kFactorMax));
  if (!factor) return json.error(ErrorCode::kCorruptData, "factor", "no such key", "a number");
  rope.factor = *factor;
  // Without the key, yarn's reference takes the model's own context.
  const std::int64_t missing = rope.kind == RopeKind::kYarn ? config.context : 8192;
  PACKSTONE_TRY(const std::optional<std::int64_t> original,
                json.integer("original_max_position_embeddings", 1, limits::kContextMax));
  rope.original_context = original.value_or(missing);
  if (rope.kind == RopeKind::kYarn) return read_yarn(json, rope);
  if (rope.kind != RopeKind::kLlama3) return {};
  PACKSTONE_TRY(rope.low_freq_factor, number_or(json, "low_freq_factor", 1e-3, 1e6, 1.0));
  PACKSTONE_TRY(rope.high_freq_factor, number_or(json, "high_freq_factor", 1e-3, 1e6, 4.0));
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    return json.error(ErrorCode::kCorruptData, "high_freq_factor",
                      fmt::format("{}", rope.high_freq_factor),
                      fmt::format("more than low_freq_factor {}", rope.low_freq_factor));
  return {};
}

Result<const Json*> object_at(const JsonReader& json, std::string_view key) {
  const Json* value = json.find(key);
  if (value != nullptr && !value->is_object())
    return json.error(ErrorCode::kCorruptData, key, json_excerpt(*value), "an object or null");
  return value;
}

// rope_parameters (transformers 5): the base and the scaling in one object, or one object for each
// kind of layer.
Status read_rope_parameters(const JsonReader& json, const Json& parameters, std::string_view file,
                            ModelConfig& config) {
  const JsonReader outer(parameters, kWhere, file, "rope_parameters");
  PACKSTONE_TRY(const Json* full, object_at(outer, "full_attention"));
  PACKSTONE_TRY(const Json* sliding, object_at(outer, "sliding_attention"));
  const JsonReader reader(full ? *full : parameters, kWhere, file,
                          full ? "rope_parameters.full_attention" : "rope_parameters");
  PACKSTONE_TRY(config.rope_theta, number_or(reader, "rope_theta", bounds::kThetaMin,
                                             bounds::kThetaMax, config.rope_theta));
  PACKSTONE_CHECK_OK(read_scaling(reader, config, config.rope));
  if (sliding == nullptr) return {};
  if (config.architecture != Architecture::kGemma3)
    return json.error(ErrorCode::kUnsupported, "rope_parameters", "a base for sliding layers",
                      "one base for all layers");
  const JsonReader local(*sliding, kWhere, file, "rope_parameters.sliding_attention");
  PACKSTONE_TRY(config.rope_local_theta, number_or(local, "rope_theta", bounds::kThetaMin,
                                                   bounds::kThetaMax, config.rope_local_theta));
  RopeScaling scaling;
  PACKSTONE_CHECK_OK(read_scaling(local, config, scaling));
  if (scaling.kind != RopeKind::kNone)
    return local.error(ErrorCode::kUnsupported, "rope_type", "a scaling of sliding layers",
                       "default");
  return {};
}

Status read_rope(const JsonReader& json, std::string_view file, ModelConfig& config) {
  const Architecture architecture = config.architecture;
  PACKSTONE_TRY(const Json* parameters, object_at(json, "rope_parameters"));
  PACKSTONE_TRY(const Json* scaling, object_at(json, "rope_scaling"));
  PACKSTONE_TRY(const std::optional<double> theta,
                json.number("rope_theta", bounds::kThetaMin, bounds::kThetaMax));
  if (!theta && !parameters && architecture == Architecture::kQwen3)
    return json.error(ErrorCode::kCorruptData, "rope_theta", "no such key", "a number");
  config.rope_theta =
      architecture == Architecture::kQwen2 || architecture == Architecture::kGemma3 ? 1e6 : 1e4;
  if (parameters) PACKSTONE_CHECK_OK(read_rope_parameters(json, *parameters, file, config));
  if (theta) config.rope_theta = *theta;
  PACKSTONE_TRY(config.rope_local_theta, number_or(json, "rope_local_base_freq", bounds::kThetaMin,
                                                   bounds::kThetaMax, config.rope_local_theta));
  if (scaling && config.rope.kind == RopeKind::kNone)
    PACKSTONE_CHECK_OK(
        read_scaling(JsonReader(*scaling, kWhere, file, "rope_scaling"), config, config.rope));
  for (const std::string_view key : {"partial_rotary_factor"}) {
    PACKSTONE_TRY(const double part, number_or(json, key, 0.0, 1.0, 1.0));
    if (part != 1.0) return json.error(ErrorCode::kUnsupported, key, fmt::format("{}", part), "1");
  }
  PACKSTONE_TRY(const std::optional<bool> adjacent, json.boolean("rope_traditional"));
  if (adjacent == true)
    return json.error(ErrorCode::kUnsupported, "rope_traditional", "true", "false");
  return {};
}

// Which layers slide, by layer_types or by the architecture's own pattern.
Status read_sliding(const JsonReader& json, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  PACKSTONE_TRY(const std::optional<std::int64_t> window,
                json.integer("sliding_window", 1, limits::kContextMax));
  PACKSTONE_TRY(const auto types, json.texts("layer_types"));
  PACKSTONE_TRY(const std::optional<bool> use, json.boolean("use_sliding_window"));
  std::vector<bool> slides(layers, false);
  if (types) {
    if (types->size() != layers)
      return json.error(ErrorCode::kCorruptData, "layer_types",
                        fmt::format("{} entries", types->size()),
                        fmt::format("one for each of {} layers", layers));
    for (std::size_t i = 0; i < layers; ++i) {
      if ((*types)[i] != "full_attention" && (*types)[i] != "sliding_attention")
        return json.error(ErrorCode::kUnsupported, "layer_types", (*types)[i],
                          "full_attention or sliding_attention");
      slides[i] = (*types)[i] == "sliding_attention";
    }
  } else if (config.architecture == Architecture::kGemma3) {
    PACKSTONE_TRY(auto pattern, json.integer("sliding_window_pattern", 1, limits::kLayersMax));
    if (!pattern) {
      PACKSTONE_TRY(pattern, json.integer("_sliding_window_pattern", 1, limits::kLayersMax));
    }
    for (std::size_t i = 0; i < layers; ++i)
      slides[i] = (i + 1) % static_cast<std::size_t>(pattern.value_or(6)) != 0;
  } else if (config.architecture == Architecture::kGemma2) {
    for (std::size_t i = 0; i < layers; ++i) slides[i] = i % 2 == 0;
  } else if (config.architecture == Architecture::kMistral) {
    slides.assign(layers, window.has_value());
  } else if (config.architecture != Architecture::kLlama && use == true) {
    PACKSTONE_TRY(const auto first, json.integer("max_window_layers", 0, INT64_MAX));
    for (std::size_t i = 0; i < layers; ++i)
      slides[i] = static_cast<std::int64_t>(i) >= first.value_or(28);
  }
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (!any) return {};
  if (!window && config.architecture != Architecture::kGemma2)
    return json.error(ErrorCode::kCorruptData, "sliding_window", "no such key",
                      "the window of the sliding layers");
  config.sliding_window = window.value_or(4096);
  config.sliding_layers = std::move(slides);
  return {};
}

// Activations and switches whose other settings this build would compute wrongly.
Status read_features(const JsonReader& json, const ModelConfig& config) {
  const std::string_view wanted = is_gemma(config.architecture) ? "gelu_pytorch_tanh" : "silu";
  for (const std::string_view key : {"hidden_act", "hidden_activation"}) {
    PACKSTONE_TRY(const std::optional<std::string> activation, json.text(key));
    // Gemma's hidden_act is a leftover: hidden_activation rules.
    if (is_gemma(config.architecture) && key == "hidden_act") continue;
    if (activation && *activation != wanted)
      return json.error(ErrorCode::kUnsupported, key, *activation, wanted);
  }
  for (const std::string_view key : {"use_bidirectional_attention", "quantize_activations"}) {
    PACKSTONE_TRY(const std::optional<bool> on, json.boolean(key));
    if (on == true) return json.error(ErrorCode::kUnsupported, key, "true", "false");
  }
  return {};
}

Status read_gemma(const JsonReader& json, bool wrapped, ModelConfig& config) {
  const bool gemma2 = config.architecture == Architecture::kGemma2;
  PACKSTONE_TRY(config.attention_softcap, json.number("attn_logit_softcapping", 1e-3, 1e6));
  PACKSTONE_TRY(config.final_softcap, json.number("final_logit_softcapping", 1e-3, 1e6));
  const auto absent = [&](std::string_view key) {
    return !json.object().contains(std::string(key));
  };
  if (gemma2 && absent("attn_logit_softcapping")) config.attention_softcap = 50.0;
  if (gemma2 && absent("final_logit_softcapping")) config.final_softcap = 30.0;
  PACKSTONE_TRY(const std::optional<double> scalar,
                json.number("query_pre_attn_scalar", 1e-3, 1e6));
  if (!scalar && gemma2 && !wrapped)
    return json.error(ErrorCode::kCorruptData, "query_pre_attn_scalar", "no such key", "a number");
  config.query_scale = 1.0 / std::sqrt(scalar.value_or(256.0));
  return {};
}

Status read_tokens(const JsonReader& json, const JsonReader& generation, ModelConfig& config,
                   std::vector<std::string>& problems) {
  for (const JsonReader* source : {&json, &generation}) {
    PACKSTONE_TRY(const std::vector<std::int64_t> ids, source->integers("eos_token_id"));
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= config.vocab) {
        problems.push_back(fmt::format("{} {} is no token of {}", source->subject("eos_token_id"),
                                       id, config.vocab));
      } else if (std::find(config.eos.begin(), config.eos.end(), id) == config.eos.end()) {
        config.eos.push_back(id);
      }
    }
    PACKSTONE_TRY(const std::vector<std::int64_t> bos, source->integers("bos_token_id"));
    if (!config.bos && !bos.empty() && bos[0] >= 0 && bos[0] < config.vocab) config.bos = bos[0];
  }
  return {};
}

Status read_flags(const JsonReader& json, const JsonReader& root, ParsedConfig& parsed) {
  PACKSTONE_TRY(parsed.tied_flag, json.boolean("tie_word_embeddings"));
  if (!parsed.tied_flag) {
    PACKSTONE_TRY(parsed.tied_flag, root.boolean("tie_word_embeddings"));
  }
  const Architecture architecture = parsed.config.architecture;
  PACKSTONE_TRY(const std::optional<bool> attention, json.boolean("attention_bias"));
  PACKSTONE_TRY(const std::optional<bool> mlp, json.boolean("mlp_bias"));
  if (architecture == Architecture::kQwen2) {
    parsed.qkv_bias = true;
    parsed.out_bias = false;
  } else {
    parsed.qkv_bias = parsed.out_bias = attention;
  }
  if (architecture == Architecture::kLlama) parsed.mlp_bias = mlp;
  return {};
}

}  // namespace

const Json& text_config_of(const Json& root) {
  if (root.is_object()) {
    const auto it = root.find("text_config");
    if (it != root.end() && it->is_object()) return *it;
  }
  return root;
}

Result<ParsedConfig> config_from_json(const Json& root, const Json& generation,
                                      std::string_view file, std::vector<std::string>& problems) {
  if (!root.is_object())
    return fail(ErrorCode::kCorruptData, kWhere, file, json_excerpt(root), "an object");
  const JsonReader outer(root, kWhere, file);
  PACKSTONE_TRY(const std::optional<std::string> type, outer.text("model_type"));
  if (!type)
    return outer.error(ErrorCode::kCorruptData, "model_type", "no such key", "the architecture");
  const std::optional<Architecture> architecture = json_architecture(*type);
  const Json& text = text_config_of(root);
  const bool wrapped = &text != &root;
  if (!architecture || (wrapped && *type != "gemma3"))
    return outer.error(ErrorCode::kUnsupported, "model_type", *type, known_architectures());
  ParsedConfig parsed;
  parsed.layers_key = "num_hidden_layers";
  parsed.vocab_key = "vocab_size";
  ModelConfig& config = parsed.config;
  config.architecture = *architecture;
  const JsonReader json(text, kWhere, file, wrapped ? "text_config" : "");
  PACKSTONE_CHECK_OK(read_sizes(json, wrapped, config));
  config.query_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  PACKSTONE_CHECK_OK(read_rope(json, file, config));
  PACKSTONE_CHECK_OK(read_sliding(json, config));
  PACKSTONE_CHECK_OK(read_features(json, config));
  if (is_gemma(*architecture)) PACKSTONE_CHECK_OK(read_gemma(json, wrapped, config));
  PACKSTONE_CHECK_OK(read_flags(json, outer, parsed));
  const JsonReader generated(generation, kWhere, "generation_config.json");
  PACKSTONE_CHECK_OK(read_tokens(json, generated, config, problems));
  if (wrapped) {
    PACKSTONE_CHECK_OK(read_tokens(outer, generated, config, problems));
  }
  return parsed;
}

}  // namespace packstone
