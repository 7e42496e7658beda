// The GGUF container, versions 2 and 3, split sets included. Format: ggml docs/gguf.md and
// gguf.cpp of ggml 0.26; type numbers from ggml.h.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "packstone/container/container.h"
#include "packstone/container/file_map.h"
#include "packstone/container/output_file.h"

namespace packstone {

struct GgufArray;

// One metadata value with the type it has in the file.
using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                               std::uint32_t, std::int32_t, float, bool, std::string, GgufArray,
                               std::uint64_t, std::int64_t, double>;

// Arrays keep their element type even when empty. Scalars and strings are kept flat.
struct GgufArray {
  std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
               std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
               std::vector<float>, std::vector<bool>, std::vector<std::string>,
               std::vector<GgufArray>, std::vector<std::uint64_t>, std::vector<std::int64_t>,
               std::vector<double>>
      items;
};

// Whether two values have the same type and the same bits (a NaN equals itself).
bool same_value(const GgufValue& a, const GgufValue& b);

struct GgufKey {
  std::string name;
  GgufValue value;
};

// A parsed GGUF file or split set.
struct GgufFile {
  std::uint32_t version = 3;
  std::uint32_t alignment = 32;
  std::vector<GgufKey> keys;  // file order; of a split set, part 1's without split.*
  std::vector<TensorView> tensors;
  std::vector<std::filesystem::path> files;

  const GgufValue* find(std::string_view key) const;
  // Typed reads of any integer, float or string type: absent gives nothing; another type is an
  // error naming the key.
  Result<std::optional<std::int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
};

// open_gguf(path) reads a file, or the whole split set when path is any part of one.
// Exact: bitwise; no tensor byte is read.
// Errors: kNotFound, kIo; kCorruptData for every breach, naming key or tensor; kUnsupported for
//         version 1 and big-endian files.
Result<GgufFile> open_gguf(const std::filesystem::path& path);

// parse_gguf(bytes, ...) is the same on one file in memory (tests, fuzzing).
Result<GgufFile> parse_gguf(ByteSpan bytes, std::shared_ptr<const void> owner,
                            std::string_view file);

// Writes one GGUF v3 file: header, keys, tensor table, then tensors in order, each aligned to
// `general.alignment` (32 when the keys have none).
class GgufWriter {
 public:
  // Errors: kInvalidInput for duplicate or illegal names and keys, or sizes that do not fit; kIo.
  static Result<GgufWriter> create(const std::filesystem::path& path, std::vector<GgufKey> keys,
                                   std::vector<TensorSpec> specs);
  // Appends bytes of the current tensor in pieces of any size; pads and goes on when it is full.
  Status write(ByteSpan bytes);
  // Where the file is until commit, and whole after finish.
  const std::filesystem::path& path() const { return file_.path(); }
  Status finish();
  // finish, if it was not called, and the rename to the target.
  Status commit();

 private:
  GgufWriter(OutputFile file, std::vector<std::uint64_t> sizes, std::uint32_t alignment)
      : file_(std::move(file)), sizes_(std::move(sizes)), alignment_(alignment) {}
  OutputFile file_;
  std::vector<std::uint64_t> sizes_;
  std::uint32_t alignment_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace packstone
