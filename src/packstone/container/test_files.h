// For tests: files put together byte by byte, folders that go away, and what a refusal must look
// like. Attack generators say in one line what they try.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone::testing_files {

// Bytes in writing order, little-endian.
class FileBytes {
 public:
  FileBytes() = default;
  explicit FileBytes(std::string text) : bytes_(std::move(text)) {}

  template <class T>
  FileBytes& put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    store_le(bytes_.data() + at, value);
    return *this;
  }
  FileBytes& raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  // A GGUF string: u64 length, then the bytes.
  FileBytes& text(std::string_view text) { return put<std::uint64_t>(text.size()).raw(text); }
  FileBytes& zeros(std::size_t count) {
    bytes_.append(count, '\0');
    return *this;
  }
  FileBytes& align(std::size_t alignment) {
    return zeros((alignment - bytes_.size() % alignment) % alignment);
  }
  // Head of a GGUF v3 file.
  FileBytes& gguf(std::uint64_t tensors, std::uint64_t keys) {
    return raw("GGUF").put<std::uint32_t>(3).put(tensors).put(keys);
  }
  FileBytes& key(std::string_view name, std::uint32_t type) { return text(name).put(type); }
  FileBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }

  std::string& bytes() { return bytes_; }
  const std::string& bytes() const { return bytes_; }
  ByteSpan span() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

// A safetensors file of this header, as it stands, and `data_bytes` bytes 0, 1, 2, ...
inline FileBytes safetensors_file(std::string_view header, std::size_t data_bytes) {
  FileBytes file;
  file.text(header);
  for (std::size_t i = 0; i < data_bytes; ++i) file.put(static_cast<std::uint8_t>(i));
  return file;
}

// A header entry.
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

// A folder that is removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder() {
    static std::atomic<int> counter = 0;
    path_ = std::filesystem::path(testing::TempDir()) /
            fmt::format("packstone-{}-{}", static_cast<long>(::getpid()), counter++);
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  std::filesystem::path file(std::string_view name, const FileBytes& content) const {
    return file(name, content.bytes());
  }
  // Names in the folder, hidden ones too.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& item : std::filesystem::directory_iterator(path_))
      found.push_back(item.path().filename().string());
    std::ranges::sort(found);
    return found;
  }

 private:
  std::filesystem::path path_;
};

// Whether error has the message form of the house: `container.function: subject: got X, need Y`.
inline bool has_house_form(const Error& error) {
  const std::string& text = error.message;
  const std::size_t subject = text.find(": ");
  const std::size_t got = text.find(": got ", subject == std::string::npos ? 0 : subject + 1);
  return text.starts_with("container.") && subject != std::string::npos &&
         got != std::string::npos && text.find(", need ", got) != std::string::npos;
}

// A refusal of this code whose message has all these parts.
template <class T>
void expect_refused(const Result<T>& result, ErrorCode code,
                    std::initializer_list<std::string_view> parts = {}) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(static_cast<int>(result.error().code), static_cast<int>(code))
      << result.error().message;
  EXPECT_TRUE(has_house_form(result.error())) << result.error().message;
  for (const std::string_view part : parts)
    EXPECT_NE(result.error().message.find(part), std::string::npos)
        << result.error().message << "\nlacks: " << part;
}

#define PACKSTONE_ASSERT_OK(expression)                            \
  do {                                                             \
    const auto& checked_ = (expression);                           \
    ASSERT_TRUE(checked_.has_value()) << checked_.error().message; \
  } while (false)

}  // namespace packstone::testing_files
