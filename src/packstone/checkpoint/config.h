// Model configs from both worlds: config.json and GGUF keys, checked key by key.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/checkpoint/model_config.h"
#include "packstone/container/gguf.h"

namespace packstone {

// A config, and what the file says about tensors that the file's tensors must confirm.
struct ParsedConfig {
  ModelConfig config;  // bias flags and tied_embeddings are set by the binder
  std::optional<bool> tied_flag;
  std::optional<bool> qkv_bias, out_bias, mlp_bias;
  // Names of the keys in messages about tensors: layers, vocab.
  std::string layers_key, vocab_key;
};

// config_from_json(root, generation, file, problems) reads config.json (a `gemma3` wrapper's
// text_config included) and generation_config.json (null: none).
// Errors: kUnsupported for an architecture, rope scaling or activation this build lacks, by name;
//         kCorruptData for a missing key, a wrong type, a number out of range or a contradiction;
//         each names file and key. No allocation depends on an unchecked number.
// Source of keys and defaults: transformers model configs; MLX-LM 0.32 where they agree. A default
//         on which the two disagree is not taken: the key must be there.
Result<ParsedConfig> config_from_json(const nlohmann::ordered_json& root,
                                      const nlohmann::ordered_json& generation,
                                      std::string_view file, std::vector<std::string>& problems);

// config_from_gguf(gguf, file, problems): the same from GGUF keys and, for Llama 3's rope scaling,
// from the tensor rope_freqs.weight; token counts and head widths that keys leave out come from
// the embedding's shape and the key rules of llama.cpp (llama-model.cpp, b11434).
Result<ParsedConfig> config_from_gguf(const GgufFile& gguf, std::string_view file,
                                      std::vector<std::string>& problems);

// The object that holds the language model's keys: text_config of a wrapper, else the root.
const nlohmann::ordered_json& text_config_of(const nlohmann::ordered_json& root);

// Bounds of what a config may say; the same for both sources.
namespace config_limits {
inline constexpr std::int64_t kHiddenMax = 1 << 20;
inline constexpr std::int64_t kIntermediateMax = 1 << 24;
inline constexpr std::int64_t kHeadsMax = 1 << 14;
inline constexpr std::int64_t kHeadDimMax = 1 << 14;
inline constexpr double kThetaMin = 1.0;
inline constexpr double kThetaMax = 1e12;
inline constexpr double kFactorMin = 1e-3;
inline constexpr double kFactorMax = 1e6;
}  // namespace config_limits

// llama3_factors(rope, theta, head_dim): by what Llama 3's rule divides frequency i, in binary32.
// Shapes: [head_dim / 2]. Source: transformers modeling_rope_utils, "llama3"; the tensor
// rope_freqs.weight of GGUF holds these numbers.
std::vector<float> llama3_factors(const RopeScaling& rope, double theta, std::int64_t head_dim);

// The shortest decimal of a binary32 number as a double: 1e-05 for the float nearest to it, so that
// numbers that passed through GGUF read as they were written.
double shortest_double(float value);

}  // namespace packstone
