// A model on disk, whatever its container: its config, its tokenizer, and its weights by their
// Hugging Face names, each bound (checked) once.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "packstone/checkpoint/model_config.h"
#include "packstone/checkpoint/quantization_spec.h"
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

// One stored tensor of a packed module: a plane of the weight, or a companion beside the planes
// (scales of activations, a quant_state), which a copy of the layout carries.
struct StoredPart {
  std::string suffix;  // after the module's name
  TensorView view;
  int plane = -1;  // -1: a companion
};

// One logical tensor. Vectors have shape [n] and are bound as a [1, n] weight, except vectors with
// paired heads (biases of llama's q and k in GGUF), which are bound as [n, 1]: their elements are
// the rows that the order moves.
struct CheckpointTensor {
  std::string name;         // "model.layers.0.self_attn.q_proj.weight"; packed parts share it
  std::string stored_name;  // the (first) tensor's name in the file
  std::vector<std::int64_t> shape;  // logical
  PackedWeight weight;
  RowOrder row_order = RowOrder::kSame;
  std::int64_t order_head_dim = 0;  // with kPairedHeads
  ValueRule value_rule = ValueRule::kSame;
  std::vector<StoredPart> parts;  // of a packed module of a folder, in file order

  // stored_rows(t): for each Hugging Face row the stored row that holds it; empty when equal.
  std::vector<std::int32_t> stored_rows() const;
};

// A tensor of the architecture whose stored type or layout this build has no format for. A
// checkpoint that holds one opens, so that it can be inspected; it cannot be loaded, and converted
// only by a copy, where the layout is described.
struct UnsupportedTensor {
  std::string name;  // Hugging Face
  std::string stored_name;
  std::string type;                 // as the container names it; of a packed module its layout
  std::vector<std::int64_t> shape;  // logical
  std::uint64_t bytes = 0;          // of all its parts
  std::string detail;               // "exl3 4 bit mcg"
  std::int64_t bits = 0;            // of a code, where known
  std::vector<StoredPart> parts;    // of a packed module of a folder: all its tensors
};

// Layouts whose modules are read, described and copied as they are, without a format: "exl3",
// "paroquant".
std::span<const std::string_view> described_layouts();
bool is_described_layout(std::string_view layout);

// described_fault(source, target): how a described module differs from its copy, by tensor; empty
// when names, types, shapes and all bytes are the same. Errors: none. Cost: reads every byte.
std::string described_fault(const UnsupportedTensor& source, const UnsupportedTensor& target);

struct Checkpoint {
  std::filesystem::path path;
  ContainerKind container = ContainerKind::kFolder;
  ModelConfig config;
  std::vector<CheckpointTensor> tensors;
  std::map<std::string, std::size_t, std::less<>> index;  // by name
  std::vector<UnsupportedTensor> unsupported;
  std::vector<std::string> problems;  // readable, not fatal
  std::vector<std::string> unbound;   // stored tensors that no rule of the architecture names

  // Metadata as found, for carrying over: exactly one of the two groups is filled.
  GgufFile gguf;                       // kGguf
  std::vector<float> rope_divisors;    // kGguf: rope_freqs.weight, stored bits
  nlohmann::ordered_json config_json;  // kFolder
  nlohmann::ordered_json generation_config_json;
  std::string tokenizer_json_text;
  std::string tokenizer_config_text;
  std::map<std::string, std::string> safetensors_metadata;
  std::vector<QuantizationFile> quantization_files;  // beside config.json
  SafetensorsSet safetensors;  // kFolder: tensors and files; its metadata is moved to the map above

  // The stored tensors, in file order, and the files that hold them.
  std::span<const TensorView> stored_tensors() const;
  std::span<const std::filesystem::path> weight_files() const;

  const CheckpointTensor* find(std::string_view name) const;
  std::uint64_t bytes() const;  // of all bound tensors
  std::int64_t parameters() const;
};

// open_checkpoint(path): a GGUF file (any part of a split set) or a folder in HF or MLX layout.
// Exact: bitwise; no tensor byte is copied. Headers alone are read, but for the few numbers that
// decide how the others read or must agree with the config: zero points of layouts that the config
// calls symmetric and of Marlin, group numbers, pairs of ParoQuant, the states, tables and shapes
// beside a packed weight, and rope_freqs.weight and a factor of GGUF.
// Every tensor that the config calls for must be there with the config's shape. Tensors of a type
// without a format are listed in `unsupported`.
// Errors: kNotFound, kIo, kCorruptData, kUnsupported (architecture, feature), each naming file and
//         key or tensor.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

// A container and its tensors, with no architecture asked for.
struct RawCheckpoint {
  std::filesystem::path path;
  ContainerKind container = ContainerKind::kFolder;
  std::vector<TensorView> tensors;     // in stored order
  GgufFile gguf;                       // kGguf; its tensors are moved to `tensors`
  nlohmann::ordered_json config_json;  // kFolder; null when there is none
  std::map<std::string, std::string> safetensors_metadata;
};

// open_raw(path): the same paths as open_checkpoint, for any model and any tensor type.
// Errors: kNotFound, kIo, kCorruptData, kUnsupported, as the containers say.
Result<RawCheckpoint> open_raw(const std::filesystem::path& path);

// require_supported(c, where): kUnsupported naming the first tensors without a format, if any, and
// what can be done with them.
Status require_supported(const Checkpoint& checkpoint, std::string_view where);

// bind_gguf and bind_folder: a checkpoint from parsed containers. `file` is for messages. They are
// open_checkpoint without the file system (tests, fuzzing).
Result<Checkpoint> bind_gguf(GgufFile gguf, std::string_view file);
// `quantization_files`: quantize_config.json and its kin, in order of precedence.
Result<Checkpoint> bind_folder(SafetensorsSet set, nlohmann::ordered_json config,
                               nlohmann::ordered_json generation_config, std::string_view file,
                               const std::vector<QuantizationFile>& quantization_files = {});

// checkpoint_vocabulary(c): the tokenizer's data, from either container.
Result<Vocabulary> checkpoint_vocabulary(const Checkpoint& checkpoint);

}  // namespace packstone
