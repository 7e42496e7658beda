// Seams of output_file.cc for its tests.
#pragma once

#include <filesystem>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone::internal {

// Writes all bytes to a descriptor. Errors: kExhausted when the disk, a quota or the largest file
// size is reached; kIo otherwise, naming `path`.
Status write_fully(int fd, ByteSpan bytes, const std::filesystem::path& path);

// How many temporary files and folders of this process exist.
std::size_t unfinished_outputs();

}  // namespace packstone::internal
