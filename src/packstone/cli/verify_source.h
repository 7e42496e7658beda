// Where verify finds the source of a certificate when the call does not say.
#pragma once

#include <filesystem>
#include <string>

#include "packstone/cli/command.h"
#include "packstone/cli/output.h"

namespace packstone::cli {

// find_source(recorded, target, context): beside `target`, in the same folder, the GGUF file or
// model folder whose files have the sizes and sums that `recorded` (the certificate's side) gives.
// No name of the certificate leads to a file elsewhere. Cost: reads the files of fitting size.
// Errors: kInvalidInput when there is none; kCancelled.
Result<std::filesystem::path> find_source(const Json& recorded, const std::filesystem::path& target,
                                          Context& context);

}  // namespace packstone::cli
