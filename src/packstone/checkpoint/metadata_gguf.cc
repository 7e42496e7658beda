#include <cmath>
#include <set>

#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/gguf_vocabulary.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/names.h"
#include "packstone/checkpoint/not_carried.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.gguf_keys";

// Numbers of general.file_type (llama.h, llama_ftype), for the type that holds most bytes.
constexpr std::pair<std::string_view, std::uint32_t> kFileTypes[] = {
    {"float32", 0},    {"float16", 1},    {"gguf.q4_0", 2},  {"gguf.q4_1", 3},  {"gguf.q8_0", 7},
    {"gguf.q5_0", 8},  {"gguf.q5_1", 9},  {"gguf.q2_k", 10}, {"gguf.q3_k", 12}, {"gguf.q4_k", 15},
    {"gguf.q5_k", 17}, {"gguf.q6_k", 18}, {"bfloat16", 32},
};

std::uint32_t file_type(const std::vector<OutputTensor>& tensors) {
  std::map<std::string_view, double> elements;
  for (const OutputTensor& tensor : tensors)
    if (tensor.shape.size() == 2)
      elements[format_info(tensor.format).name] +=
          static_cast<double>(tensor.shape[0]) * static_cast<double>(tensor.shape[1]);
  std::string_view largest = "float32";
  double most = 0.0;
  for (const auto& [name, count] : elements)
    if (count > most) {
      most = count;
      largest = name;
    }
  for (const auto& [name, number] : kFileTypes)
    if (name == largest) return number;
  return 0;
}

bool any_quantized(const std::vector<OutputTensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const OutputTensor& tensor) {
    return format_info(tensor.format).scheme != SchemeKind::kFloat;
  });
}

// Keys under "<architecture>.".
class KeyList {
 public:
  explicit KeyList(std::string_view architecture) : prefix_(fmt::format("{}.", architecture)) {}

  void add(std::string_view name, GgufValue value) {
    keys.push_back({std::string(name), std::move(value)});
  }
  void integer(std::string_view key, std::int64_t value) {
    add(prefix_ + std::string(key), static_cast<std::uint32_t>(value));
  }
  void number(std::string_view key, double value) {
    add(prefix_ + std::string(key), static_cast<float>(value));
  }
  void text(std::string_view key, std::string value) {
    add(prefix_ + std::string(key), std::move(value));
  }

  std::vector<GgufKey> keys;

 private:
  std::string prefix_;
};

void add_rope(const ModelConfig& config, KeyList& list) {
  list.integer("rope.dimension_count", config.head_dim);
  list.number("rope.freq_base", config.rope_theta);
  const RopeScaling& rope = config.rope;
  if (rope.kind == RopeKind::kLinear || rope.kind == RopeKind::kYarn) {
    list.text("rope.scaling.type", rope.kind == RopeKind::kLinear ? "linear" : "yarn");
    list.number("rope.scaling.factor", rope.factor);
  }
  if (rope.kind == RopeKind::kLlama3) {
    // The tensor rope_freqs.weight is what llama.cpp applies; these keys keep its four parameters
    // for the way back.
    list.number("rope.llama3.factor", rope.factor);
    list.number("rope.llama3.low_freq_factor", rope.low_freq_factor);
    list.number("rope.llama3.high_freq_factor", rope.high_freq_factor);
    list.integer("rope.llama3.original_context_length", rope.original_context);
  }
  if (rope.kind != RopeKind::kYarn) return;
  list.integer("rope.scaling.original_context_length", rope.original_context);
  list.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
  list.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
  const double own = 0.1 * std::log(rope.factor) + 1.0;
  const double wanted = yarn_attention_factor(rope);
  if (std::abs(wanted - own) > 1e-7 * own) list.number("rope.scaling.attn_factor", wanted / own);
}

Status add_sliding(const ModelConfig& config, KeyList& list, MetadataReport& report) {
  const bool gemma2 = config.architecture == Architecture::kGemma2;
  const bool gemma3 = config.architecture == Architecture::kGemma3;
  if (!gemma2 && !gemma3) {
    if (!config.sliding_layers.empty())
      report.not_carried.push_back("config.json: sliding_window (llama.cpp attends to all tokens)");
    return {};
  }
  if (config.sliding_window == 0) return {};
  list.integer("attention.sliding_window", config.sliding_window);
  const std::int64_t period = sliding_period(config.sliding_layers);
  if (period == 0)
    return fail(ErrorCode::kUnsupported, kWhere, "'layer_types'",
                "an irregular order of sliding layers", "every nth layer global");
  if (period != (gemma2 ? 2 : 6)) list.integer("attention.sliding_window_pattern", period);
  if (gemma3 && config.rope_local_theta != 1e4)
    list.number("rope.freq_base_swa", config.rope_local_theta);
  return {};
}

void add_gemma(const ModelConfig& config, KeyList& list, MetadataReport& report) {
  const bool gemma2 = config.architecture == Architecture::kGemma2;
  if (config.attention_softcap) list.number("attn_logit_softcapping", *config.attention_softcap);
  if (config.final_softcap) list.number("final_logit_softcapping", *config.final_softcap);
  const bool largest = config.layers == (gemma2 ? 46 : 62);
  const std::int64_t width = largest ? config.hidden / config.heads : config.head_dim;
  const double derived = 1.0 / std::sqrt(static_cast<double>(width));
  if (std::abs(config.query_scale - derived) > 1e-6 * derived) {
    list.number("attention.scale", config.query_scale);
    report.not_carried.push_back(
        "config.json: query_pre_attn_scalar (llama.cpp derives it from the layer count)");
  }
}

Status add_model(const ModelConfig& config, KeyList& list, MetadataReport& report) {
  list.integer("block_count", config.layers);
  list.integer("context_length", config.context);
  list.integer("embedding_length", config.hidden);
  list.integer("feed_forward_length", config.intermediate);
  list.integer("attention.head_count", config.heads);
  list.integer("attention.head_count_kv", config.kv_heads);
  list.integer("attention.key_length", config.head_dim);
  list.integer("attention.value_length", config.head_dim);
  list.number("attention.layer_norm_rms_epsilon", config.rms_eps);
  list.integer("vocab_size", config.vocab);
  add_rope(config, list);
  PACKSTONE_CHECK_OK(add_sliding(config, list, report));
  if (gguf_norms_plus_one(config.architecture)) add_gemma(config, list, report);
  return {};
}

// Lists the members of tokenizer_config.json that no GGUF key expresses.
Status list_tokenizer_rest(const Checkpoint& source, MetadataReport& report) {
  static const std::set<std::string_view> kKeys = {
      "bos_token",           "eos_token",     "eot_token",       "unk_token",
      "sep_token",           "pad_token",     "mask_token",      "add_bos_token",
      "add_eos_token",       "chat_template", "tokenizer_class", "clean_up_tokenization_spaces",
      "added_tokens_decoder"};
  if (source.tokenizer_config_text.empty()) return {};
  PACKSTONE_TRY(const Json config, parse_json(source.tokenizer_config_text, kWhere,
                                              (source.path / "tokenizer_config.json").string()));
  if (!config.is_object()) return {};
  for (const auto& [key, value] : config.items())
    if (!kKeys.contains(key) || (key == "chat_template" && !value.is_string() && !value.is_null()))
      report.not_carried.push_back(fmt::format("tokenizer_config.json: {}", key));
  return {};
}

// End tokens of the config that the tokenizer does not name go to the two further keys that
// llama.cpp stops at.
Result<std::vector<GgufKey>> tokenizer_keys(const Checkpoint& source, MetadataReport& report) {
  const bool has_tokenizer = !source.tokenizer_json_text.empty();
  Vocabulary vocabulary;
  if (has_tokenizer) {
    PACKSTONE_TRY(vocabulary, checkpoint_vocabulary(source));
    PACKSTONE_CHECK_OK(list_tokenizer_rest(source, report));
  } else {
    report.not_carried.push_back("tokenizer (the source has no tokenizer.json)");
  }
  if (!vocabulary.bos && source.config.bos)
    vocabulary.bos = static_cast<std::int32_t>(*source.config.bos);
  std::vector<std::int32_t> further;
  for (const std::int64_t wide : source.config.eos) {
    const auto id = static_cast<std::int32_t>(wide);
    if (!vocabulary.eos) vocabulary.eos = id;
    if (id == vocabulary.eos || id == vocabulary.eot) continue;
    if (!vocabulary.eot)
      vocabulary.eot = id;
    else
      further.push_back(id);
  }
  // "none" is llama.cpp's word for a model without a tokenizer.
  std::vector<GgufKey> keys = {{"tokenizer.ggml.model", std::string("none")}};
  for (GgufKey& key : gguf_token_id_keys(vocabulary)) keys.push_back(std::move(key));
  if (has_tokenizer) keys = gguf_vocabulary_keys(vocabulary);
  if (!further.empty())
    keys.push_back({"tokenizer.ggml.eom_token_id", static_cast<std::uint32_t>(further[0])});
  for (std::size_t i = 1; i < further.size(); ++i)
    report.not_carried.push_back(fmt::format("eos_token_id {} (GGUF names three)", further[i]));
  return keys;
}

// Keys of config.json that the GGUF keys, the tensors or the tokenizer express.
bool key_has_place(const std::string& key) {
  static const std::set<std::string_view> kKeys = {"model_type",
                                                   "architectures",
                                                   "vocab_size",
                                                   "hidden_size",
                                                   "intermediate_size",
                                                   "num_hidden_layers",
                                                   "num_attention_heads",
                                                   "num_key_value_heads",
                                                   "head_dim",
                                                   "max_position_embeddings",
                                                   "rms_norm_eps",
                                                   "rope_theta",
                                                   "rope_scaling",
                                                   "rope_parameters",
                                                   "rope_local_base_freq",
                                                   "tie_word_embeddings",
                                                   "bos_token_id",
                                                   "eos_token_id",
                                                   "pad_token_id",
                                                   "hidden_act",
                                                   "hidden_activation",
                                                   "attention_bias",
                                                   "mlp_bias",
                                                   "sliding_window",
                                                   "sliding_window_pattern",
                                                   "_sliding_window_pattern",
                                                   "layer_types",
                                                   "use_sliding_window",
                                                   "max_window_layers",
                                                   "attn_logit_softcapping",
                                                   "final_logit_softcapping",
                                                   "query_pre_attn_scalar",
                                                   "quantization",
                                                   "quantization_config",
                                                   "compression_config",
                                                   "text_config",
                                                   "_name_or_path"};
  return kKeys.contains(key);
}

void list_folder_rest(const Checkpoint& source, MetadataReport& report) {
  const Json& text = text_config_of(source.config_json);
  for (const auto& [key, value] : source.config_json.items())
    if (!key_has_place(key)) report.not_carried.push_back(fmt::format("config.json: {}", key));
  if (&text != &source.config_json)
    for (const auto& [key, value] : text.items())
      if (!key_has_place(key))
        report.not_carried.push_back(fmt::format("config.json: text_config.{}", key));
  if (source.generation_config_json.is_object())
    for (const auto& [key, value] : source.generation_config_json.items())
      if (!key_has_place(key))
        report.not_carried.push_back(fmt::format("generation_config.json: {}", key));
  for (const auto& [key, value] : source.safetensors_metadata)
    if (key != "format") report.not_carried.push_back(fmt::format("safetensors metadata: {}", key));
}

std::string model_name(const Checkpoint& source) {
  const auto it = source.config_json.find("_name_or_path");
  std::filesystem::path name = source.path.lexically_normal();
  if (it != source.config_json.end() && it->is_string() && !it->get<std::string>().empty())
    name = it->get<std::string>();
  if (!name.has_filename()) name = name.parent_path();
  return name.filename().string();
}

Result<std::vector<GgufKey>> made_keys(const Checkpoint& source, MetadataReport& report) {
  const std::string_view architecture = gguf_architecture_name(source.config.architecture);
  KeyList list(architecture);
  list.add("general.architecture", std::string(architecture));
  list.add("general.type", std::string("model"));
  if (const std::string name = model_name(source); !name.empty()) list.add("general.name", name);
  PACKSTONE_CHECK_OK(add_model(source.config, list, report));
  PACKSTONE_TRY(std::vector<GgufKey> tokenizer, tokenizer_keys(source, report));
  for (GgufKey& key : tokenizer) list.keys.push_back(std::move(key));
  list_folder_rest(source, report);
  return std::move(list.keys);
}

}  // namespace

Result<std::vector<GgufKey>> gguf_keys(const Checkpoint& source, const OutputFacts& facts,
                                       MetadataReport& report) {
  std::vector<GgufKey> keys;
  bool has_version = false;
  if (source.container == ContainerKind::kGguf) {
    for (const GgufKey& key : source.gguf.keys) {
      if (key.name == "general.file_type" || key.name == "general.alignment" ||
          key.name.starts_with("split."))
        continue;
      has_version = has_version || key.name == "general.quantization_version";
      keys.push_back(key);
    }
  } else {
    PACKSTONE_TRY(keys, made_keys(source, report));
  }
  keys.push_back({"general.file_type", file_type(*facts.tensors)});
  if (!has_version && any_quantized(*facts.tensors))
    keys.push_back({"general.quantization_version", std::uint32_t{2}});  // GGML_QNT_VERSION
  list_stored_rest(source, *facts.tensors, {}, report);
  list_quantization_rest(source, {}, report);
  PACKSTONE_CHECK_OK(list_files_rest(source, ContainerKind::kGguf, report));
  return keys;
}

}  // namespace packstone
