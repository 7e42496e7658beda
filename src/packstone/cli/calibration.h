// Calibration text: what a quantizer looks at a model with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/cli/command.h"
#include "packstone/cli/output.h"

namespace packstone::cli {

struct CalibrationOptions {
  std::string file;
  int samples = 128;
  int length = 512;  // tokens of a sample
  std::uint64_t seed = 123;
};

struct Calibration {
  std::vector<std::vector<std::int32_t>> sequences;
  std::int64_t chunks = 0;  // that the file has
  std::string sha256;       // of the file
  Json json;                // what a report says of it
};

// read_calibration(command, options, source): the file's tokens, cut into chunks of `length` that
// do not overlap, of which a seeded permutation picks `samples` (all, if there are fewer).
// A file whose name ends in .jsonl has one JSON object with a "text" or one JSON string a line; one
// ending in .json is a JSON array of token ids; any other is UTF-8 text. Documents of a .jsonl are
// joined one after the other; BOS stands before each where the model adds it.
// Exact: the same file, model and options give the same sequences everywhere.
// Errors: kNotFound, kIo; kInvalidInput for a line that is neither, ids outside the vocabulary, or
//         fewer tokens than one chunk.
Result<Calibration> read_calibration(std::string_view command, const CalibrationOptions& options,
                                     const Checkpoint& source);

}  // namespace packstone::cli
