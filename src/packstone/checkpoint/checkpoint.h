// A model on disk, whatever its container: its config, its tokenizer, and its weights by their
// Hugging Face names, each bound (checked) once.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "packstone/checkpoint/model_config.h"
#include "packstone/container/gguf.h"
#include "packstone/container/safetensors.h"
#include "packstone/format/packed_weight.h"
#include "packstone/text/vocabulary.h"

namespace packstone {

enum class ContainerKind { kGguf, kFolder };

// How a stored tensor relates to the Hugging Face tensor of its name.
enum class RowOrder {
  kSame,
  kPairedHeads,  // GGUF llama q/k: within each head the halves are interleaved,
                 // stored row h*d + 2j + p = Hugging Face row h*d + p*(d/2) + j
};
enum class ValueRule {
  kSame,
  kPlusOne,  // GGUF gemma norms: stored = value + 1
};

// One logical tensor. Vectors have shape [n] and are bound as a [1, n] weight; tensors of rank 3 and
// more as [product of leading axes, n].
struct CheckpointTensor {
  std::string name;         // "model.layers.0.self_attn.q_proj.weight"; packed parts share it
  std::string stored_name;  // the (first) tensor's name in the file
  std::vector<std::int64_t> shape;  // logical
  PackedWeight weight;
  RowOrder row_order = RowOrder::kSame;
  std::int64_t order_head_dim = 0;  // with kPairedHeads
  ValueRule value_rule = ValueRule::kSame;

  // stored_rows(t): for each Hugging Face row the stored row that holds it; empty when equal.
  std::vector<std::int32_t> stored_rows() const;
};

struct Checkpoint {
  std::filesystem::path path;
  ContainerKind container = ContainerKind::kFolder;
  ModelConfig config;
  std::vector<CheckpointTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> index;  // by name
  std::vector<std::string> problems;   // readable, not fatal
  std::vector<std::string> unbound;    // stored tensors that no rule of the architecture names

  // Metadata as found, for carrying over: exactly one of the two groups is filled.
  GgufFile gguf;                        // kGguf
  nlohmann::ordered_json config_json;   // kFolder
  nlohmann::ordered_json generation_config_json;
  std::string tokenizer_json_text;
  std::string tokenizer_config_text;
  std::map<std::string, std::string> safetensors_metadata;

  const CheckpointTensor* find(std::string_view name) const;
  std::uint64_t bytes() const;         // of all bound tensors
  std::int64_t parameters() const;
};

// open_checkpoint(path): a GGUF file (any part of a split set) or a folder in HF or MLX layout.
// Exact: bitwise; no tensor byte is read, none copied.
// Errors: kNotFound, kIo, kCorruptData, kUnsupported (architecture, layout), each naming file and
//         key or tensor.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

// checkpoint_vocabulary(c): the tokenizer's data, from either container.
Result<Vocabulary> checkpoint_vocabulary(const Checkpoint& checkpoint);

}  // namespace packstone
