// SHA-256 of the bytes that a checkpoint stores: its files whole, and each stored tensor.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/thread_pool.h"
#include "packstone/checkpoint/checkpoint.h"

namespace packstone {

// sha256_text(bytes) is the sum as 64 hexadecimal digits. Errors: none; empty when OpenSSL has no
// memory. Source: FIPS 180-4, by OpenSSL.
std::string sha256_text(std::string_view bytes);

// Bytes of a file: all of it, or the part that holds a tensor.
struct FileRange {
  std::filesystem::path path;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool whole = false;  // the file must end there
};

// What a long hash looks at and reports to. `advanced` is called on the caller's thread with the
// bytes done since its last call.
struct HashWatch {
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(std::uint64_t)> advanced;
};

// sha256_ranges(ranges, pool, watch): one sum a range, in their order.
// Exact: bitwise; independent of the pool's size. Cost: reads every byte, with one buffer of 256
// KiB a thread whatever the sizes. Threads: the pool given.
// Errors: kNotFound, kIo (a file that ends early or late counts as changed meanwhile), kExhausted,
// kCancelled.
Result<std::vector<std::string>> sha256_ranges(std::span<const FileRange> ranges, ThreadPool& pool,
                                               const HashWatch& watch);

// A file of a checkpoint.
struct CheckpointFile {
  std::string name;  // in its folder; of a GGUF file the number of the part, from 1
  std::filesystem::path path;
  std::uint64_t bytes = 0;
};

// checkpoint_files(checkpoint, leave_out): what belongs to a checkpoint. Of GGUF the parts, in
// order. Of a folder every plain file directly in it, sorted by name as bytes, but for `leave_out`,
// names that begin with a dot (weights aside), and links that lead out (no reader follows those).
// Errors: kIo; kExhausted for more files than a checkpoint has.
Result<std::vector<CheckpointFile>> checkpoint_files(const Checkpoint& checkpoint,
                                                     std::string_view leave_out);

}  // namespace packstone
