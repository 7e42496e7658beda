// Tiny checkpoints for tests: random weights of any architecture, written as a Hugging Face or MLX
// folder or as a GGUF file, from one description.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "packstone/container/gguf.h"
#include "packstone/container/safetensors.h"

namespace packstone::tiny {

using Json = nlohmann::ordered_json;

// A stored tensor with its bytes.
struct Tensor {
  std::string name;
  std::string type;  // safetensors or GGUF type name
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

struct Folder {
  Json config;
  Json generation_config;
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> texts;  // further files by name

  Tensor& at(std::string_view name) {
    for (Tensor& tensor : tensors)
      if (tensor.name == name) return tensor;
    std::abort();
  }
  void erase(std::string_view name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  }
};

struct Gguf {
  std::vector<GgufKey> keys;
  std::vector<Tensor> tensors;

  void set(std::string_view name, GgufValue value) {
    for (GgufKey& key : keys)
      if (key.name == name) {
        key.value = std::move(value);
        return;
      }
    keys.push_back({std::string(name), std::move(value)});
  }
  void erase(std::string_view name) {
    std::erase_if(keys, [&](const GgufKey& key) { return key.name == name; });
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  }
};

// Sizes shared by all tiny models.
inline constexpr std::int64_t kHidden = 64, kIntermediate = 128, kHeads = 4, kKvHeads = 2,
                              kHeadDim = 16, kVocab = 96;

inline std::vector<std::byte> float_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// Small multiples of 2^-7: sums with 1 stay exact.
inline Tensor random_tensor(std::string name, std::vector<std::int64_t> shape,
                            std::mt19937& random) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = (static_cast<float>(random() % 255) - 127.0f) / 128.0f;
  return {std::move(name), "F32", std::move(shape), float_bytes(values)};
}

// A config.json of model_type llama, mistral, qwen2, qwen3, gemma2 or gemma3_text.
inline Json config(std::string_view model_type, std::int64_t layers) {
  Json json = {{"model_type", model_type},
               {"hidden_size", kHidden},
               {"num_hidden_layers", layers},
               {"intermediate_size", kIntermediate},
               {"num_attention_heads", kHeads},
               {"num_key_value_heads", kKvHeads},
               {"head_dim", kHeadDim},
               {"vocab_size", kVocab},
               {"max_position_embeddings", 256},
               {"rms_norm_eps", 1e-5},
               {"rope_theta", 10000.0},
               {"tie_word_embeddings", true},
               {"bos_token_id", 1},
               {"eos_token_id", 2}};
  if (model_type.starts_with("gemma")) {
    json["query_pre_attn_scalar"] = kHeadDim;
    json["sliding_window"] = 8;
  }
  return json;
}

// The Hugging Face form: all weights F32, embeddings tied.
inline Folder folder(std::string_view model_type, std::int64_t layers = 2, unsigned seed = 1) {
  std::mt19937 random(seed);
  Folder made;
  made.config = config(model_type, layers);
  auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    made.tensors.push_back(random_tensor(name, std::move(shape), random));
  };
  const bool gemma = model_type.starts_with("gemma");
  add("model.embed_tokens.weight", {kVocab, kHidden});
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    add(p + "input_layernorm.weight", {kHidden});
    add(p + "post_attention_layernorm.weight", {kHidden});
    if (gemma) {
      add(p + "pre_feedforward_layernorm.weight", {kHidden});
      add(p + "post_feedforward_layernorm.weight", {kHidden});
    }
    if (model_type == "qwen3" || model_type == "gemma3_text") {
      add(p + "self_attn.q_norm.weight", {kHeadDim});
      add(p + "self_attn.k_norm.weight", {kHeadDim});
    }
    add(p + "self_attn.q_proj.weight", {kHeads * kHeadDim, kHidden});
    add(p + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, kHidden});
    add(p + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden});
    add(p + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim});
    if (model_type == "qwen2") {
      add(p + "self_attn.q_proj.bias", {kHeads * kHeadDim});
      add(p + "self_attn.k_proj.bias", {kKvHeads * kHeadDim});
      add(p + "self_attn.v_proj.bias", {kKvHeads * kHeadDim});
    }
    add(p + "mlp.gate_proj.weight", {kIntermediate, kHidden});
    add(p + "mlp.up_proj.weight", {kIntermediate, kHidden});
    add(p + "mlp.down_proj.weight", {kHidden, kIntermediate});
  }
  add("model.norm.weight", {kHidden});
  return made;
}

// Replaces a float matrix by an MLX affine triple of random codes.
inline void pack(Folder& made, const std::string& module, int bits, int group, unsigned seed = 7) {
  std::mt19937 random(seed);
  Tensor& weight = made.at(module + ".weight");
  const std::int64_t rows = weight.shape[0], cols = weight.shape[1];
  auto bytes = [&](std::int64_t count) {
    std::vector<std::byte> made_bytes(static_cast<std::size_t>(count));
    for (std::byte& byte : made_bytes) byte = static_cast<std::byte>(random() % 60);
    return made_bytes;
  };
  const std::vector<std::int64_t> groups = {rows, cols / group};
  weight = {module + ".weight", "U32", {rows, cols * bits / 32}, bytes(rows * cols * bits / 8)};
  made.tensors.push_back({module + ".scales", "F16", groups, bytes(rows * cols / group * 2)});
  made.tensors.push_back({module + ".biases", "F16", groups, bytes(rows * cols / group * 2)});
}

// An MLX folder: all matrices packed with one setting.
inline Folder mlx_folder(std::string_view model_type, int bits, int group,
                         std::int64_t layers = 2) {
  Folder made = folder(model_type, layers);
  std::vector<std::string> modules;
  for (const Tensor& tensor : made.tensors)
    if (tensor.shape.size() == 2) modules.push_back(tensor.name.substr(0, tensor.name.size() - 7));
  for (const std::string& module : modules) pack(made, module, bits, group);
  made.config["quantization"] = {{"group_size", group}, {"bits", bits}};
  made.config["quantization_config"] = made.config["quantization"];
  return made;
}

inline std::string gguf_name(std::string name, bool gemma) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", gemma ? "post_attention_norm" : "ffn_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : table)
    if (const std::size_t at = name.find(from); at != std::string::npos)
      name.replace(at, from.size(), to);
  return name;
}

// Rows as llama.cpp's converter orders them: [heads, 2, d/2] becomes [heads, d/2, 2].
inline void pair_rows(Tensor& tensor, std::int64_t heads) {
  const std::int64_t rows = tensor.shape[0], head_dim = rows / heads;
  const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(rows);
  std::vector<std::byte> moved(tensor.bytes.size());
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t half = 0; half < 2; ++half)
      for (std::int64_t j = 0; j < head_dim / 2; ++j)
        std::memcpy(
            moved.data() + static_cast<std::size_t>(head * head_dim + 2 * j + half) * row_bytes,
            tensor.bytes.data() +
                static_cast<std::size_t>(head * head_dim + half * (head_dim / 2) + j) * row_bytes,
            row_bytes);
  tensor.bytes = std::move(moved);
}

// The keys of the tokenizer: a byte-level BPE of kVocab tokens.
inline void add_tokenizer(Gguf& made) {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types(kVocab, 1);
  for (std::int64_t i = 0; i < kVocab; ++i)
    tokens.push_back(i < 3 ? "<|special" + std::to_string(i) + "|>"
                           : std::string(1, static_cast<char>('!' + i - 3)));
  tokens.back() = "ab";
  types[0] = types[1] = types[2] = 3;
  made.set("tokenizer.ggml.model", std::string("gpt2"));
  made.set("tokenizer.ggml.pre", std::string("smollm"));
  made.set("tokenizer.ggml.tokens", GgufArray{tokens});
  made.set("tokenizer.ggml.token_type", GgufArray{types});
  made.set("tokenizer.ggml.merges", GgufArray{std::vector<std::string>{"a b"}});
  made.set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  made.set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  made.set("tokenizer.chat_template", std::string("{{ messages }}"));
}

// The GGUF form of the same weights.
inline Gguf gguf(std::string_view model_type, std::int64_t layers = 2, unsigned seed = 1) {
  const Folder source = folder(model_type, layers, seed);
  const bool gemma = model_type.starts_with("gemma");
  std::string arch = model_type == "mistral" ? "llama" : std::string(model_type);
  if (arch == "gemma3_text") arch = "gemma3";
  Gguf made;
  auto number = [&](const std::string& key, std::int64_t value) {
    made.set(arch + "." + key, static_cast<std::uint32_t>(value));
  };
  made.set("general.architecture", arch);
  made.set("general.name", std::string("tiny"));
  number("block_count", layers);
  number("context_length", 256);
  number("embedding_length", kHidden);
  number("feed_forward_length", kIntermediate);
  number("attention.head_count", kHeads);
  number("attention.head_count_kv", kKvHeads);
  number("attention.key_length", kHeadDim);
  number("attention.value_length", kHeadDim);
  made.set(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  made.set(arch + ".rope.freq_base", 10000.0f);
  if (gemma) number("attention.sliding_window", 8);
  add_tokenizer(made);
  for (Tensor tensor : source.tensors) {
    const bool paired = arch == "llama";
    if (paired && tensor.name.ends_with("q_proj.weight")) pair_rows(tensor, kHeads);
    if (paired && tensor.name.ends_with("k_proj.weight")) pair_rows(tensor, kKvHeads);
    if (gemma && tensor.name.ends_with("norm.weight")) {
      std::vector<float> values = floats_of(tensor);
      for (float& value : values) value += 1.0f;
      tensor.bytes = float_bytes(values);
    }
    tensor.name = gguf_name(tensor.name, gemma);
    made.tensors.push_back(std::move(tensor));
  }
  return made;
}

// A folder of its own for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "packstone-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline Status write(const std::filesystem::path& path, const Folder& made) {
  std::filesystem::create_directories(path);
  write_text(path / "config.json", made.config.dump());
  if (!made.generation_config.is_null())
    write_text(path / "generation_config.json", made.generation_config.dump());
  for (const auto& [name, text] : made.texts) write_text(path / name, text);
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : made.tensors)
    specs.push_back(
        {tensor.name, safetensors_type(tensor.type), tensor.shape, tensor.bytes.size()});
  PACKSTONE_TRY(SafetensorsWriter writer,
                SafetensorsWriter::create(path / "model.safetensors", specs, {}));
  for (const Tensor& tensor : made.tensors) PACKSTONE_CHECK_OK(writer.write(tensor.bytes));
  return writer.commit();
}

inline Status write(const std::filesystem::path& path, const Gguf& made) {
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : made.tensors)
    specs.push_back({tensor.name, gguf_type(tensor.type), tensor.shape, tensor.bytes.size()});
  PACKSTONE_TRY(GgufWriter writer, GgufWriter::create(path, made.keys, specs));
  for (const Tensor& tensor : made.tensors) PACKSTONE_CHECK_OK(writer.write(tensor.bytes));
  return writer.commit();
}

}  // namespace packstone::tiny
