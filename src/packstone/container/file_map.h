// Read-only memory maps: the one place where files are opened for reading.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone {

// A whole file mapped read-only. Shared by all views into it.
class FileMap {
  struct Private {};

 public:
  explicit FileMap(Private) {}  // for open alone
  // open(path) maps the file. Errors: kNotFound when there is none, kIo when it cannot be read or
  // is not a regular file. An empty file maps to an empty span. Cost: no byte is read.
  static Result<std::shared_ptr<const FileMap>> open(const std::filesystem::path& path);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  ByteSpan bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  ByteSpan bytes_;
};

// read_text(path, bytes_max) is the content of a small file. Errors: kNotFound, kIo, kExhausted
// when it is larger than bytes_max.
Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t bytes_max);

}  // namespace packstone
