// Proves that a file cut at any byte, or with any header byte changed, is read or refused in order,
// with memory in proportion to the file. Under the asan preset also: without a bad access.
#include <malloc.h>

#include <cstdlib>
#include <new>
#include <random>

#include "packstone/container/gguf.h"
#include "packstone/container/hostile_files.h"
#include "packstone/container/safetensors.h"

namespace {

// Bytes from operator new that this thread holds, and their peak.
thread_local std::size_t held = 0;
thread_local std::size_t held_peak = 0;

void* counted(std::size_t size) {
  void* address = std::malloc(size);
  if (address == nullptr) throw std::bad_alloc();
  held += ::malloc_usable_size(address);
  held_peak = std::max(held_peak, held);
  return address;
}

void release(void* address) {
  held -= ::malloc_usable_size(address);
  std::free(address);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void operator delete(void* address) noexcept {
  release(address);
}
void operator delete[](void* address) noexcept {
  release(address);
}
void operator delete(void* address, std::size_t) noexcept {
  release(address);
}
void operator delete[](void* address, std::size_t) noexcept {
  release(address);
}

namespace packstone {
namespace {

using namespace testing_files;

// Parsing may take this much for each byte of a file, plus a little for messages. The largest ratio
// is that of a tensor record of 24 bytes, which becomes a TensorView and an entry in an index.
constexpr std::size_t kBytesPerByte = 24;
constexpr std::size_t kBytesFixed = 64 << 10;

// parse(bytes) of a copy whose end is the end of its memory; checks memory and the error's form.
template <class Parse>
bool parses_in_bounds(std::string_view bytes, Parse parse) {
  const std::unique_ptr<char[]> copy = std::make_unique<char[]>(bytes.size());
  std::ranges::copy(bytes, copy.get());
  const std::size_t before = held;
  held_peak = held;
  const auto result = parse(std::as_bytes(std::span(copy.get(), bytes.size())), nullptr, "damaged");
  EXPECT_LT(held_peak - before, kBytesFixed + kBytesPerByte * bytes.size());
  EXPECT_TRUE(result || has_house_form(result.error())) << result.error().message;
  return result.has_value();
}

template <class Parse>
void expect_no_prefix_parses(const FileBytes& file, Parse parse) {
  const std::string& bytes = file.bytes();
  EXPECT_TRUE(parses_in_bounds(bytes, parse));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(parses_in_bounds(std::string_view(bytes).substr(0, size), parse)) << size;
}

// Every header byte set to every value.
template <class Parse>
void expect_damage_is_survived(const FileBytes& file, std::size_t header_bytes, Parse parse) {
  std::string bytes = file.bytes();
  for (std::size_t at = 0; at < header_bytes; ++at) {
    const char original = bytes[at];
    for (int value = 0; value < 256; ++value) {
      bytes[at] = static_cast<char>(value);
      parses_in_bounds(bytes, parse);
    }
    bytes[at] = original;
  }
  EXPECT_TRUE(parses_in_bounds(bytes, parse));
}

FileBytes small_safetensors() {
  return safetensors_file("{\"__metadata__\":{\"format\":\"pt\"}," +
                              entry("a", "F32", "2,1", "0,8") + "," +
                              entry("b", "U8", "3", "8,11") + "}",
                          11);
}

FileBytes small_gguf() {
  FileBytes file;
  file.gguf(2, 5).key("general.alignment", 4).put<std::uint32_t>(8);
  file.key("s", 8).text("text").key("b", 7).put<std::uint8_t>(1);
  file.key("a", 9).put<std::uint32_t>(8).put<std::uint64_t>(2).text("x").text("yz");
  file.key("n", 9).put<std::uint32_t>(9).put<std::uint64_t>(1).put<std::uint32_t>(6);
  file.put<std::uint64_t>(1).put(1.5f);
  return file.tensor("w", {32, 2}, 2, 0).tensor("v", {4}, 0, 40).align(8).zeros(40 + 16);
}

TEST(Damage, SafetensorsCutAtEveryByte) {
  expect_no_prefix_parses(small_safetensors(), parse_safetensors);
}

TEST(Damage, GgufCutAtEveryByte) {
  expect_no_prefix_parses(small_gguf(), parse_gguf);
}

TEST(Damage, SafetensorsEveryByteEveryValue) {
  const FileBytes file = small_safetensors();
  expect_damage_is_survived(file, file.bytes().size() - 11, parse_safetensors);
}

TEST(Damage, GgufEveryByteEveryValue) {
  const FileBytes file = small_gguf();
  expect_damage_is_survived(file, file.bytes().size() - 56, parse_gguf);
}

TEST(Damage, RandomPairsOfChanges) {
  constexpr std::uint32_t kSeed = 20'240'601;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937 random(kSeed);
  for (int round = 0; round < 20'000; ++round) {
    std::string gguf = small_gguf().bytes();
    std::string safetensors = small_safetensors().bytes();
    for (int change = 0; change < 2; ++change) {
      gguf[random() % gguf.size()] = static_cast<char>(random());
      safetensors[random() % safetensors.size()] = static_cast<char>(random());
    }
    parses_in_bounds(gguf, parse_gguf);
    parses_in_bounds(safetensors, parse_safetensors);
  }
}

TEST(Damage, HostileFilesTakeLittleMemory) {
  for (const HostileFile& file : hostile_gguf_files())
    EXPECT_FALSE(parses_in_bounds(file.bytes.bytes(), parse_gguf)) << file.name;
  for (const HostileFile& file : hostile_safetensors_files())
    EXPECT_FALSE(parses_in_bounds(file.bytes.bytes(), parse_safetensors)) << file.name;
}

// Files made of the records that cost the most memory for their size.
TEST(Damage, DenseFilesTakeMemoryInProportion) {
  constexpr std::uint64_t kCount = 20'000;
  FileBytes tensors;
  tensors.gguf(kCount, 0);
  for (std::uint64_t i = 0; i < kCount; ++i) tensors.tensor(fmt::format("{:x}", i), {}, 24, i * 32);
  tensors.align(32).zeros(32 * kCount);
  EXPECT_TRUE(parses_in_bounds(tensors.bytes(), parse_gguf));
  FileBytes keys;
  keys.gguf(0, kCount);
  for (std::uint64_t i = 0; i < kCount; ++i)
    keys.key(fmt::format("{:x}", i), 7).put<std::uint8_t>(1);
  EXPECT_TRUE(parses_in_bounds(keys.bytes(), parse_gguf));
  FileBytes strings;
  strings.gguf(0, 1).key("s", 9).put<std::uint32_t>(8).put(kCount).zeros(8 * kCount);
  EXPECT_TRUE(parses_in_bounds(strings.bytes(), parse_gguf));
  FileBytes arrays;
  arrays.gguf(0, 1).key("s", 9).put<std::uint32_t>(9).put(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) arrays.put<std::uint32_t>(9).put<std::uint64_t>(0);
  EXPECT_TRUE(parses_in_bounds(arrays.bytes(), parse_gguf));
  std::string members;
  for (std::uint64_t i = 0; i < kCount; ++i)
    members += (i == 0 ? "" : ",") + entry(fmt::format("{:x}", i), "U8", "0", "0,0");
  EXPECT_TRUE(
      parses_in_bounds(safetensors_file("{" + members + "}", 0).bytes(), parse_safetensors));
}

}  // namespace
}  // namespace packstone
