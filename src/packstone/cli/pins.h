// SHA-256 sums that pin what a figure was measured on.
#pragma once

#include <filesystem>
#include <string>

#include "packstone/checkpoint/checkpoint.h"

namespace packstone::cli {

// model_sha256(checkpoint): of a GGUF file, the file's sum. Of a split set or folder, the sum over
// the lines "NAME SUM\n" of its files, sorted by name: all parts, or every *.safetensors file,
// config.json, generation_config.json, tokenizer.json and tokenizer_config.json that is there.
// Errors: kIo. Cost: reads every byte.
Result<std::string> model_sha256(const Checkpoint& checkpoint);

}  // namespace packstone::cli
