// Opening what the command line names.
#pragma once

#include <filesystem>
#include <string>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/text/tokenizer.h"

namespace packstone::cli {

// The tokenizer of an open checkpoint.
Result<Tokenizer> checkpoint_tokenizer(const Checkpoint& checkpoint);

// The tokenizer of a model, or of a folder that holds tokenizer.json and no weights.
Result<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// The content of a text file given by the user. Errors: kNotFound, kIo, kExhausted.
Result<std::string> read_user_text(const std::filesystem::path& path);

}  // namespace packstone::cli
