// Files that a name inside another file points to: only plain files of the same folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "packstone/base/result.h"

namespace packstone::internal {

// The path of `name` in `folder`. `where` and `source` (the file that names it) are for messages.
// Errors: kCorruptData when the name is no plain file name, or is a link that leads out of the
// folder. One kind of link is followed: from `snapshots/<revision>/` to `blobs/` of the same
// repository, which is how the Hugging Face cache stores every file. A missing file is no error.
Result<std::filesystem::path> sibling_file(std::string_view where, std::string_view source,
                                           const std::filesystem::path& folder,
                                           std::string_view name);

// The text of `name` in `folder`, opened by the same rule. Errors: those of sibling_file and
// read_text; kNotFound when there is none.
Result<std::string> read_folder_text(std::string_view where, const std::filesystem::path& folder,
                                     std::string_view name, std::uint64_t bytes_max);

}  // namespace packstone::internal
