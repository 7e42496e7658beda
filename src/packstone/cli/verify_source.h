// Where verify finds the source of a certificate when the call does not say.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "packstone/cli/command.h"
#include "packstone/cli/output.h"

namespace packstone::cli {

// find_source(recorded, target, context): beside `target`, in the same folder, the GGUF file or
// model folder whose files have the sizes and sums that `recorded` (the certificate's side) gives.
// No name of the certificate leads to a file elsewhere. Cost: reads the files of fitting size.
// Errors: kInvalidInput when there is none; kCancelled.
Result<std::filesystem::path> find_source(const Json& recorded, const std::filesystem::path& target,
                                          Context& context);

// changed_files(recorded, path, context): the names of the recorded files that are absent at `path`
// or have another size or sum. Of a split set of GGUF only the first part is looked at.
// Errors: those of sha256_ranges; kCancelled. Cost: reads the files once.
Result<std::vector<std::string>> changed_files(const Json& recorded,
                                               const std::filesystem::path& path,
                                               Context& context);

}  // namespace packstone::cli
