// The tensors of each architecture: Hugging Face name, GGUF name, shape, and how the two stored
// forms differ. The one place where these names are written.
// Source: Hugging Face transformers model classes; gguf-py tensor_mapping and constants (0.19).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/model_config.h"
#include "packstone/format/layout.h"

namespace packstone {

// When a tensor must be there.
enum class Need {
  kAlways,
  kHead,     // absent: the embedding is the head
  kQkvBias,  // all or none, over all layers
  kOutBias,
  kMlpBias,
};

// One tensor that an architecture may have.
struct ExpectedTensor {
  std::string name;  // Hugging Face
  std::string gguf_name;
  Shape shape;          // vectors: [1, n]
  bool vector = false;  // stored with one axis
  bool norm = false;
  Need need = Need::kAlways;
  std::int64_t paired_heads = 0;  // heads whose rows GGUF interleaves; 0: same order
};

// expected_tensors(config): every tensor of the model, layer by layer, embedding first.
// Cost: about 14 entries a layer; config must have passed its checks.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Who makes the columns of a matrix: column i reads only what row i (of a bias: element i) of each
// producer made, through element-wise functions. So these rows and columns may be put into one
// other order together, and the model computes the same sums of the same products.
struct ChannelRelation {
  std::string consumer;                // "model.layers.0.mlp.down_proj.weight"
  std::vector<std::string> producers;  // weights first; biases may be absent from a model
};

// channel_relations(config): of every layer, those of all supported architectures: down_proj reads
// act(gate_proj) * up_proj. Errors: none.
std::vector<ChannelRelation> channel_relations(const ModelConfig& config);

// fixed_columns_reason(name): why no such relation lets the columns of a matrix change their order;
// empty for the consumer of one. Errors: none.
std::string_view fixed_columns_reason(std::string_view name);

// Whether GGUF stores this architecture's norms as value + 1.
bool gguf_norms_plus_one(Architecture architecture);

// "llama", "qwen2", ...: the value of general.architecture.
std::string_view gguf_architecture_name(Architecture architecture);

// The architecture of general.architecture, or nothing.
std::optional<Architecture> gguf_architecture(std::string_view name);

// The architecture of config.json's model_type ("gemma3_text" and "gemma3" are both Gemma 3).
std::optional<Architecture> json_architecture(std::string_view model_type);

// "llama, qwen2, ...": for messages.
std::string known_architectures();

// The layer number of "model.layers.12.x" or "blk.12.x", or nothing.
std::optional<std::int64_t> layer_of(std::string_view name);

}  // namespace packstone
