// Metadata across containers: config.json and its companions from GGUF keys, and GGUF keys from
// them. What has no place in the target is listed by name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/checkpoint/writer.h"

namespace packstone {

// What the output's tensors decide about its metadata.
struct OutputFacts {
  bool head = false;  // lm_head.weight is written
  const std::vector<OutputTensor>* tensors = nullptr;
  bool symmetric = false;           // all stored zero points are in the middle of the code range
  bool keeps_quantization = false;  // the source's own blocks describe the output
};

// folder_config(source, facts, report): the config.json of an output folder. A folder's own keys
// are carried as they are (of a wrapper, those of its text model); a GGUF file's are made from the
// config. `quantization_config` (MLX: also
// `quantization`) describes the output's tensors, as the consumers of their layout read it.
// Errors: kUnsupported for a config that neither transformers nor MLX-LM can express, by key.
Result<nlohmann::ordered_json> folder_config(const Checkpoint& source, const OutputFacts& facts,
                                             MetadataReport& report);

// folder_generation_config(source): generation_config.json, or null when there is nothing to say.
nlohmann::ordered_json folder_generation_config(const Checkpoint& source);

// gguf_keys(source, facts, report): all keys of an output GGUF file. Those of a GGUF source are
// carried as they are, but for general.file_type, general.alignment and split.*.
// Errors: those of checkpoint_vocabulary; kUnsupported for a config that llama.cpp cannot express.
Result<std::vector<GgufKey>> gguf_keys(const Checkpoint& source, const OutputFacts& facts,
                                       MetadataReport& report);

// The divisors that rope_freqs.weight must hold for this checkpoint; empty: no such tensor.
std::vector<float> gguf_rope_divisors(const Checkpoint& source);

// What yarn multiplies queries and keys by, as the config states or derives it.
double yarn_attention_factor(const RopeScaling& rope);

// The n of "every nth layer is global" that gives these flags; 0 when no n does.
std::int64_t sliding_period(const std::vector<bool>& sliding_layers);

}  // namespace packstone
