#include <charconv>
#include <cmath>

#include "packstone/base/limits.h"
#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/names.h"

namespace packstone {
namespace {

namespace bounds = config_limits;
constexpr std::string_view kWhere = "checkpoint.config_gguf";

// Typed, range-checked reads of `<architecture>.<key>`.
class KeyReader {
 public:
  KeyReader(const GgufFile& gguf, std::string_view file, std::string_view architecture)
      : gguf_(gguf), file_(file), prefix_(fmt::format("{}.", architecture)) {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }

  std::unexpected<Error> error(ErrorCode code, std::string_view key, std::string_view got,
                               std::string_view need) const {
    return fail(code, kWhere, fmt::format("{}: '{}'", file_, name(key)), got, need);
  }

  // A number, or an array with the same number for every layer.
  Result<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t high,
                                              std::int64_t layers = 0) const {
    std::optional<std::int64_t> value;
    const GgufValue* stored = gguf_.find(name(key));
    const GgufArray* array = stored ? std::get_if<GgufArray>(stored) : nullptr;
    if (array != nullptr && layers > 0) {
      PACKSTONE_TRY(value, one_for_all(key, *array, layers));
    } else {
      PACKSTONE_TRY(value, gguf_.integer(name(key)));
    }
    if (value && (*value < 1 || *value > high))
      return error(ErrorCode::kCorruptData, key, std::to_string(*value),
                   fmt::format("an integer from 1 to {}", high));
    return value;
  }

  Result<std::int64_t> required(std::string_view key, std::int64_t high,
                                std::int64_t layers = 0) const {
    PACKSTONE_TRY(const std::optional<std::int64_t> value, integer(key, high, layers));
    if (!value) return error(ErrorCode::kCorruptData, key, "no such key", "an integer");
    return *value;
  }

  Result<std::optional<double>> number(std::string_view key, double low, double high) const {
    const GgufValue* stored = gguf_.find(name(key));
    PACKSTONE_TRY(std::optional<double> value, gguf_.number(name(key)));
    if (value && !(*value >= low && *value <= high))
      return error(ErrorCode::kCorruptData, key, fmt::format("{}", *value),
                   fmt::format("a number from {} to {}", low, high));
    if (value && std::holds_alternative<float>(*stored))
      value = shortest_double(std::get<float>(*stored));
    return value;
  }

 private:
  Result<std::optional<std::int64_t>> one_for_all(std::string_view key, const GgufArray& array,
                                                  std::int64_t layers) const {
    return std::visit(
        [&]<class T>(const std::vector<T>& items) -> Result<std::optional<std::int64_t>> {
          if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
            if (items.size() < static_cast<std::size_t>(layers))
              return error(ErrorCode::kCorruptData, key, fmt::format("{} entries", items.size()),
                           fmt::format("one for each of {} layers", layers));
            for (const T item : items)
              if (item != items[0])
                return error(ErrorCode::kUnsupported, key, "numbers that differ by layer",
                             "one number for all layers");
            if (std::cmp_greater(items[0], INT64_MAX))
              return error(ErrorCode::kCorruptData, key, "a number over 2^63", "a small integer");
            return std::optional(static_cast<std::int64_t>(items[0]));
          } else {
            return error(ErrorCode::kCorruptData, key, "an array that is not of integers",
                         "an integer");
          }
        },
        array.items);
  }

  const GgufFile& gguf_;
  std::string_view file_;
  std::string prefix_;
};

const TensorView* find_tensor(const GgufFile& gguf, std::string_view name) {
  for (const TensorView& view : gguf.tensors)
    if (view.name == name) return &view;
  return nullptr;
}

// The number of tokens: the rows of the embedding, which the key and the token list must confirm.
Status read_vocab(const GgufFile& gguf, std::string_view file, const KeyReader& keys,
                  ModelConfig& config, std::vector<std::string>& problems) {
  PACKSTONE_TRY(const std::optional<std::int64_t> stated,
                keys.integer("vocab_size", limits::kVocabularyMax));
  const TensorView* embedding = find_tensor(gguf, "token_embd.weight");
  std::int64_t tokens = 0;
  if (const GgufValue* list = gguf.find("tokenizer.ggml.tokens"))
    if (const GgufArray* array = std::get_if<GgufArray>(list))
      if (const auto* texts = std::get_if<std::vector<std::string>>(&array->items))
        tokens = static_cast<std::int64_t>(texts->size());
  config.vocab = stated.value_or(tokens);
  if (embedding != nullptr && embedding->shape.size() == 2) config.vocab = embedding->shape[0];
  if (config.vocab < 1 || config.vocab > limits::kVocabularyMax)
    return keys.error(ErrorCode::kCorruptData, "vocab_size", std::to_string(config.vocab),
                      fmt::format("1 to {} tokens", limits::kVocabularyMax));
  if (stated && *stated != config.vocab)
    return keys.error(ErrorCode::kCorruptData, "vocab_size", std::to_string(*stated),
                      fmt::format("{}, the rows of token_embd.weight", config.vocab));
  if (tokens > config.vocab)
    return fail(ErrorCode::kCorruptData, kWhere, fmt::format("{}: 'tokenizer.ggml.tokens'", file),
                fmt::format("{} tokens", tokens),
                fmt::format("at most {}, the rows of token_embd.weight", config.vocab));
  if (tokens != 0 && tokens < config.vocab)
    problems.push_back(fmt::format("{}: tokenizer.ggml.tokens has {} tokens, the embedding {} rows",
                                   file, tokens, config.vocab));
  return {};
}

Status read_sizes(const KeyReader& keys, ModelConfig& config) {
  PACKSTONE_TRY(config.layers, keys.required("block_count", limits::kLayersMax));
  const std::int64_t layers = config.layers;
  PACKSTONE_TRY(config.hidden, keys.required("embedding_length", bounds::kHiddenMax));
  PACKSTONE_TRY(config.intermediate,
                keys.required("feed_forward_length", bounds::kIntermediateMax, layers));
  PACKSTONE_TRY(config.heads, keys.required("attention.head_count", bounds::kHeadsMax, layers));
  PACKSTONE_TRY(const auto kv_heads,
                keys.integer("attention.head_count_kv", bounds::kHeadsMax, layers));
  config.kv_heads = kv_heads.value_or(config.heads);
  PACKSTONE_TRY(config.context, keys.required("context_length", limits::kContextMax));
  if (config.heads % config.kv_heads != 0)
    return keys.error(ErrorCode::kCorruptData, "attention.head_count_kv",
                      std::to_string(config.kv_heads),
                      fmt::format("a divisor of head_count {}", config.heads));
  PACKSTONE_TRY(const auto key_length, keys.integer("attention.key_length", bounds::kHeadDimMax));
  if (!key_length && config.hidden % config.heads != 0)
    return keys.error(ErrorCode::kCorruptData, "attention.head_count", std::to_string(config.heads),
                      fmt::format("a divisor of embedding_length {}", config.hidden));
  config.head_dim = key_length.value_or(config.hidden / config.heads);
  if (config.head_dim % 2 != 0)
    return keys.error(ErrorCode::kCorruptData, "attention.key_length",
                      std::to_string(config.head_dim), "an even number");
  for (const std::string_view key :
       {"attention.value_length", "rope.dimension_count", "attention.key_length_swa",
        "attention.value_length_swa", "rope.dimension_count_swa"}) {
    PACKSTONE_TRY(const auto length, keys.integer(key, bounds::kHeadDimMax));
    if (length && *length != config.head_dim)
      return keys.error(ErrorCode::kUnsupported, key, std::to_string(*length),
                        fmt::format("{}, the key length", config.head_dim));
  }
  PACKSTONE_TRY(const auto experts, keys.integer("expert_count", INT64_MAX));
  if (experts)
    return keys.error(ErrorCode::kUnsupported, "expert_count", std::to_string(*experts),
                      "a dense model");
  PACKSTONE_TRY(const auto eps, keys.number("attention.layer_norm_rms_epsilon", 1e-15, 1.0));
  if (!eps)
    return keys.error(ErrorCode::kCorruptData, "attention.layer_norm_rms_epsilon", "no such key",
                      "a number");
  config.rms_eps = *eps;
  return {};
}

// Llama 3's scaling is stored as a tensor of divisors; its four parameters are found by computing
// the tensor again from those of the published models (and from this program's own keys).
Status read_rope_tensor(const GgufFile& gguf, std::string_view file, const KeyReader& keys,
                        ModelConfig& config) {
  const TensorView* view = find_tensor(gguf, "rope_freqs.weight");
  if (view == nullptr) return {};
  const std::string subject = fmt::format("{}: 'rope_freqs.weight'", file);
  const auto count = static_cast<std::size_t>(config.head_dim / 2);
  if (view->type->name != "F32" || view->shape.size() != 1 ||
      view->shape[0] != static_cast<std::int64_t>(count))
    return fail(ErrorCode::kCorruptData, kWhere, subject,
                fmt::format("{} with {} axes", view->type->name, view->shape.size()),
                fmt::format("F32 of [{}], half the key length", count));
  std::vector<float> stored(count);
  double largest = 1.0;
  for (std::size_t i = 0; i < count; ++i) {
    stored[i] = load_le<float>(view->bytes.data() + 4 * i);
    if (!(stored[i] >= 1e-3f && stored[i] <= 1e6f))
      return fail(ErrorCode::kCorruptData, kWhere, subject, fmt::format("{} at {}", stored[i], i),
                  "divisors from 0.001 to 1000000");
    largest = std::max(largest, static_cast<double>(stored[i]));
  }
  RopeScaling rope;
  rope.kind = RopeKind::kLlama3;
  rope.factor = shortest_double(static_cast<float>(largest));
  PACKSTONE_TRY(const auto low, keys.number("rope.llama3.low_freq_factor", 1e-3, 1e6));
  PACKSTONE_TRY(const auto high, keys.number("rope.llama3.high_freq_factor", 1e-3, 1e6));
  PACKSTONE_TRY(const auto original,
                keys.integer("rope.llama3.original_context_length", limits::kContextMax));
  PACKSTONE_TRY(const auto factor, keys.number("rope.llama3.factor", 1e-3, 1e6));
  rope.factor = factor.value_or(rope.factor);
  rope.low_freq_factor = low.value_or(1.0);
  rope.high_freq_factor = high.value_or(4.0);
  rope.original_context = original.value_or(8192);
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    return keys.error(ErrorCode::kCorruptData, "rope.llama3.high_freq_factor",
                      fmt::format("{}", rope.high_freq_factor), "more than low_freq_factor");
  const std::vector<float> computed = llama3_factors(rope, config.rope_theta, config.head_dim);
  bool all_one = true;
  for (std::size_t i = 0; i < count; ++i) {
    all_one = all_one && stored[i] == 1.0f;
    if (std::abs(stored[i] - computed[i]) > 1e-4f * computed[i] && largest != 1.0)
      return fail(ErrorCode::kUnsupported, kWhere, subject,
                  fmt::format("divisor {} at {}", stored[i], i),
                  fmt::format("{} by the llama3 rule with factor {}", computed[i], rope.factor));
  }
  if (!all_one) config.rope = rope;
  return {};
}

Status read_rope(const GgufFile& gguf, std::string_view file, const KeyReader& keys,
                 ModelConfig& config) {
  PACKSTONE_TRY(const auto theta,
                keys.number("rope.freq_base", bounds::kThetaMin, bounds::kThetaMax));
  config.rope_theta = theta.value_or(1e4);
  PACKSTONE_TRY(const auto local,
                keys.number("rope.freq_base_swa", bounds::kThetaMin, bounds::kThetaMax));
  config.rope_local_theta = local.value_or(1e4);
  if (config.architecture == Architecture::kGemma2 && local && *local != config.rope_theta)
    return keys.error(ErrorCode::kUnsupported, "rope.freq_base_swa", fmt::format("{}", *local),
                      "the base of the other layers");
  PACKSTONE_TRY(const auto kind, gguf.text(keys.name("rope.scaling.type")));
  PACKSTONE_TRY(auto factor, keys.number("rope.scaling.factor", 0.0, bounds::kFactorMax));
  if (!factor) {
    PACKSTONE_TRY(factor, keys.number("rope.scale_linear", 0.0, bounds::kFactorMax));
  }
  RopeScaling& rope = config.rope;
  rope.factor = factor.value_or(0.0) == 0.0 ? 1.0 : *factor;
  if (rope.factor < bounds::kFactorMin)
    return keys.error(ErrorCode::kCorruptData, "rope.scaling.factor",
                      fmt::format("{}", rope.factor),
                      fmt::format("at least {}", bounds::kFactorMin));
  PACKSTONE_TRY(const auto original,
                keys.integer("rope.scaling.original_context_length", limits::kContextMax));
  if (kind == "yarn") {
    rope.kind = RopeKind::kYarn;
    rope.original_context = original.value_or(config.context);
    PACKSTONE_TRY(const auto fast, keys.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6));
    PACKSTONE_TRY(const auto slow, keys.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6));
    rope.beta_fast = fast.value_or(32.0);
    rope.beta_slow = slow.value_or(1.0);
    PACKSTONE_TRY(const auto attention, keys.number("rope.scaling.attn_factor", 1e-3, 1e3));
    // llama.cpp multiplies its factor onto yarn's own (llama-context.cpp).
    if (attention) rope.attention_factor = *attention * (0.1 * std::log(rope.factor) + 1.0);
    return {};
  }
  if (kind && *kind != "none" && *kind != "linear")
    return keys.error(ErrorCode::kUnsupported, "rope.scaling.type", *kind, "none, linear or yarn");
  if (kind != "none" && rope.factor != 1.0) {
    rope.kind = RopeKind::kLinear;
    return {};
  }
  rope.factor = 1.0;
  return read_rope_tensor(gguf, file, keys, config);
}

// The pattern as a number (every nth layer is global) or one flag for each layer.
Status read_sliding(const GgufFile& gguf, const KeyReader& keys, ModelConfig& config) {
  const bool gemma2 = config.architecture == Architecture::kGemma2;
  if (!gemma2 && config.architecture != Architecture::kGemma3) return {};
  PACKSTONE_TRY(const auto window, gguf.integer(keys.name("attention.sliding_window")));
  if (window && (*window < 0 || *window > limits::kContextMax))
    return keys.error(ErrorCode::kCorruptData, "attention.sliding_window", std::to_string(*window),
                      fmt::format("an integer from 0 to {}", limits::kContextMax));
  config.sliding_window = window.value_or(gemma2 ? 4096 : 0);
  if (config.sliding_window == 0) return {};
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const auto layers = static_cast<std::size_t>(config.layers);
  const GgufValue* stored = gguf.find(keys.name(kPattern));
  const GgufArray* array = stored ? std::get_if<GgufArray>(stored) : nullptr;
  if (array != nullptr) {
    const auto* flags = std::get_if<std::vector<bool>>(&array->items);
    if (flags == nullptr || flags->size() < layers)
      return keys.error(ErrorCode::kCorruptData, kPattern, "another array",
                        fmt::format("a flag for each of {} layers", layers));
    config.sliding_layers.assign(flags->begin(),
                                 flags->begin() + static_cast<std::ptrdiff_t>(layers));
    return {};
  }
  PACKSTONE_TRY(const auto pattern, keys.integer(kPattern, limits::kLayersMax));
  const auto period = static_cast<std::size_t>(pattern.value_or(gemma2 ? 2 : 6));
  config.sliding_layers.resize(layers);
  for (std::size_t i = 0; i < layers; ++i) config.sliding_layers[i] = (i + 1) % period != 0;
  return {};
}

// llama.cpp knows the scale of Gemma's queries by the number of layers (gemma2.cpp, gemma3.cpp).
Status read_gemma(const KeyReader& keys, ModelConfig& config) {
  const bool gemma2 = config.architecture == Architecture::kGemma2;
  PACKSTONE_TRY(config.attention_softcap, keys.number("attn_logit_softcapping", 1e-3, 1e6));
  PACKSTONE_TRY(config.final_softcap, keys.number("final_logit_softcapping", 1e-3, 1e6));
  if (gemma2 && !config.attention_softcap) config.attention_softcap = 50.0;
  if (gemma2 && !config.final_softcap) config.final_softcap = 30.0;
  const bool largest = config.layers == (gemma2 ? 46 : 62);
  const std::int64_t width = largest ? config.hidden / config.heads : config.head_dim;
  config.query_scale = 1.0 / std::sqrt(static_cast<double>(width));
  PACKSTONE_TRY(const auto scale, keys.number("attention.scale", 1e-6, 1e3));
  if (scale) config.query_scale = *scale;
  return {};
}

Status read_tokens(const GgufFile& gguf, std::string_view file, ModelConfig& config,
                   std::vector<std::string>& problems) {
  const auto in_range = [&](std::string_view key, std::int64_t id) {
    if (id >= 0 && id < config.vocab) return true;
    problems.push_back(fmt::format("{}: '{}' {} is no token of {}", file, key, id, config.vocab));
    return false;
  };
  PACKSTONE_TRY(const auto bos, gguf.integer("tokenizer.ggml.bos_token_id"));
  if (bos && in_range("tokenizer.ggml.bos_token_id", *bos)) config.bos = bos;
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"}) {
    PACKSTONE_TRY(const auto id, gguf.integer(key));
    if (id && in_range(key, *id) &&
        std::find(config.eos.begin(), config.eos.end(), *id) == config.eos.end())
      config.eos.push_back(*id);
  }
  return {};
}

}  // namespace

double shortest_double(float value) {
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double wide = value;
  std::from_chars(text, written.ptr, wide);
  return wide;
}

std::vector<float> llama3_factors(const RopeScaling& rope, double theta, std::int64_t head_dim) {
  std::vector<float> factors(static_cast<std::size_t>(head_dim / 2));
  const auto original = static_cast<double>(rope.original_context);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(head_dim);
    const double wavelength = 2.0 * M_PI * std::pow(theta, exponent);
    double factor = 1.0;
    if (wavelength > original / rope.low_freq_factor) {
      factor = rope.factor;
    } else if (wavelength >= original / rope.high_freq_factor) {
      const double smooth = (original / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1.0 / ((1.0 - smooth) / rope.factor + smooth);
    }
    factors[i] = static_cast<float>(factor);
  }
  return factors;
}

Result<ParsedConfig> config_from_gguf(const GgufFile& gguf, std::string_view file,
                                      std::vector<std::string>& problems) {
  PACKSTONE_TRY(const std::optional<std::string> name, gguf.text("general.architecture"));
  const std::string subject = fmt::format("{}: 'general.architecture'", file);
  if (!name)
    return fail(ErrorCode::kCorruptData, kWhere, subject, "no such key", "the architecture");
  const std::optional<Architecture> architecture = gguf_architecture(*name);
  if (!architecture)
    return fail(ErrorCode::kUnsupported, kWhere, subject, *name,
                "llama, qwen2, qwen3, gemma2 or gemma3");
  const KeyReader keys(gguf, file, *name);
  ParsedConfig parsed;
  parsed.layers_key = keys.name("block_count");
  parsed.vocab_key = keys.name("vocab_size");
  ModelConfig& config = parsed.config;
  config.architecture = *architecture;
  if (*architecture == Architecture::kQwen2) parsed.qkv_bias = true;
  PACKSTONE_CHECK_OK(read_sizes(keys, config));
  PACKSTONE_CHECK_OK(read_vocab(gguf, file, keys, config, problems));
  config.query_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  PACKSTONE_CHECK_OK(read_rope(gguf, file, keys, config));
  PACKSTONE_CHECK_OK(read_sliding(gguf, keys, config));
  if (gguf_norms_plus_one(*architecture)) PACKSTONE_CHECK_OK(read_gemma(keys, config));
  PACKSTONE_CHECK_OK(read_tokens(gguf, file, config, problems));
  return parsed;
}

}  // namespace packstone
