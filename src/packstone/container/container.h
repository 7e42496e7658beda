// Names and byte views of tensors in files: what safetensors and GGUF have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone {

// Element or block type of a stored tensor, as its container says it. Never widened or renamed.
struct StorageType {
  std::string_view name;      // safetensors: "BF16"; GGUF: "Q4_0"
  std::int64_t block_cols;    // elements in one block along the last axis; 1 for plain types
  std::int64_t block_bytes;   // bytes of that block
  std::int32_t gguf_id = -1;  // GGUF's type number, -1 in safetensors
};

// A named range of bytes in a mapped file. Shape is row-major: the last axis is contiguous (GGUF's
// dimensions reversed). Valid while `owner` lives.
struct TensorView {
  std::string name;
  const StorageType* type = nullptr;
  std::vector<std::int64_t> shape;
  ByteSpan bytes;
  std::shared_ptr<const void> owner;  // keeps the mapping alive
  std::string file;                   // for messages
  std::size_t file_index = 0;         // in the files of its set
  std::uint64_t offset = 0;           // of its bytes in that file
};

// What a writer needs to know of a tensor before any byte is written.
struct TensorSpec {
  std::string name;
  const StorageType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

// Bytes of a tensor of `type` and `shape`, all steps checked; nothing when a product overflows, an
// axis is negative, or the last axis is not whole blocks.
std::optional<std::uint64_t> tensor_bytes(const StorageType& type,
                                          const std::vector<std::int64_t>& shape);

// The storage type of a safetensors dtype name ("F32", "F8_E4M3", ...) or nullptr.
const StorageType* safetensors_type(std::string_view name);

// The storage type of a GGUF type number or name, or nullptr.
const StorageType* gguf_type(std::int32_t id);
const StorageType* gguf_type(std::string_view name);

}  // namespace packstone
