// The safetensors container: single files, sharded sets with an index. Format: the safetensors
// README and `tensor.rs` of huggingface/safetensors 0.5 (validate).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "packstone/container/container.h"
#include "packstone/container/file_map.h"
#include "packstone/container/output_file.h"

namespace packstone {

// A parsed file or sharded set: views of all tensors, in file order, and the string metadata.
struct SafetensorsSet {
  std::vector<TensorView> tensors;
  std::map<std::string, std::string>
      metadata;  // union over shards; equal keys must agree or the first wins
  std::vector<std::filesystem::path> files;

  const TensorView* find(std::string_view name) const;  // by name, logarithmic
  std::map<std::string, std::size_t, std::less<>> index;
};

// open_safetensors(path) reads one .safetensors file.
// Exact: bitwise; no tensor byte is read.
// Errors: kNotFound, kIo; kCorruptData for every breach of the format, naming tensor and rule.
Result<SafetensorsSet> open_safetensors(const std::filesystem::path& path);

// parse_safetensors(bytes, ...) is the same on bytes in memory (tests, fuzzing).
Result<SafetensorsSet> parse_safetensors(ByteSpan bytes, std::shared_ptr<const void> owner,
                                         std::string_view file);

// open_safetensors_folder(folder) reads `model.safetensors.index.json` and the shards it names,
// else `model.safetensors`. Stray files are ignored. Errors: as above; missing shards are listed,
// all; shard names must be plain file names inside the folder.
Result<SafetensorsSet> open_safetensors_folder(const std::filesystem::path& folder);

// Writes one file: header first (all specs known), then the tensors' bytes in order.
// The header is padded with spaces so that data starts at a multiple of 8.
class SafetensorsWriter {
 public:
  // Errors: kInvalidInput for duplicate names or sizes that do not fit their type; kIo.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          std::vector<TensorSpec> specs,
                                          const std::map<std::string, std::string>& metadata);
  // Appends bytes of the current tensor, in pieces of any size; goes on to the next when it is
  // full.
  Status write(ByteSpan bytes);
  // Errors: kInvalidInput when bytes are missing; kIo, kExhausted.
  Status commit();

 private:
  SafetensorsWriter(OutputFile file, std::uint64_t bytes)
      : file_(std::move(file)), bytes_left_(bytes) {}
  OutputFile file_;
  std::uint64_t bytes_left_;
};

// Plan of a sharded set: how many tensors (in order) go to each shard of at most `shard_bytes_max`.
std::vector<std::size_t> plan_shards(const std::vector<TensorSpec>& specs,
                                     std::uint64_t shard_bytes_max);

// The text of model.safetensors.index.json for tensors placed in files, keys sorted.
std::string safetensors_index_text(const std::vector<TensorSpec>& specs,
                                   const std::vector<std::string>& file_of,
                                   std::uint64_t parameters);

}  // namespace packstone
