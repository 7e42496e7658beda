// The architecture of a decoder model as plain numbers: the meeting point of config.json and GGUF
// keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace packstone {

enum class Architecture { kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3 };

enum class RopeKind { kNone, kLinear, kLlama3, kYarn };

struct RopeScaling {
  RopeKind kind = RopeKind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  double mscale = 1.0;                     // yarn
  double mscale_all_dim = 0.0;             // yarn
  std::optional<double> attention_factor;  // yarn, when the config states it
  std::int64_t original_context = 8192;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t context = 0;
  double rms_eps = 1e-5;
  double rope_theta = 10000.0;
  double rope_local_theta = 10000.0;  // gemma3's sliding layers
  RopeScaling rope;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool tied_embeddings = false;
  std::int64_t sliding_window = 0;          // 0: none
  std::vector<bool> sliding_layers;         // one per layer; empty: none slide
  std::optional<double> attention_softcap;  // gemma2
  std::optional<double> final_softcap;      // gemma2
  double query_scale = 0.0;                 // multiplies q.k
  std::optional<std::int64_t> bos;
  std::vector<std::int64_t> eos;  // union of all sources
};

// "llama", "qwen2", ...: the model_type of config.json.
std::string_view architecture_name(Architecture architecture);

}  // namespace packstone
