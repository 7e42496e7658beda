// Proves that what the writers write is what the readers read, for both containers.
#include "packstone/container/container.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "packstone/container/gguf.h"
#include "packstone/container/safetensors.h"

namespace packstone {
namespace {

namespace fs = std::filesystem;

fs::path scratch(std::string_view name) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("packstone-{}", ::getpid());
  fs::create_directories(folder);
  return folder / name;
}

std::vector<std::byte> counting(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST(Safetensors, RoundTrip) {
  const fs::path path = scratch("a.safetensors");
  const std::vector<TensorSpec> specs = {{"odd", safetensors_type("U8"), {3}, 3},
                                         {"w", safetensors_type("BF16"), {2, 4}, 16},
                                         {"empty", safetensors_type("F32"), {0, 4}, 0}};
  const auto bytes = counting(19);
  {
    auto writer = SafetensorsWriter::create(path, specs, {{"format", "mlx"}});
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->write(ByteSpan(bytes).first(5)));
    ASSERT_TRUE(writer->write(ByteSpan(bytes).subspan(5)));
    const auto status = writer->commit();
    ASSERT_TRUE(status) << status.error().message;
  }
  const auto set = open_safetensors(path);
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ(set->tensors.size(), 3u);
  EXPECT_EQ(set->metadata.at("format"), "mlx");
  const TensorView* w = set->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->type->name, "BF16");
  EXPECT_TRUE(std::ranges::equal(w->bytes, ByteSpan(bytes).subspan(3)));
}

TEST(Gguf, RoundTrip) {
  const fs::path path = scratch("a.gguf");
  std::vector<GgufKey> keys = {
      {"general.architecture", std::string("llama")},
      {"x.bools", GgufArray{std::vector<bool>{true, false}}},
      {"x.nested", GgufArray{std::vector<GgufArray>{{std::vector<std::string>{"a", "b"}}}}},
      {"x.f", 1.5f}};
  const std::vector<TensorSpec> specs = {{"a", gguf_type("Q4_0"), {2, 32}, 36},
                                         {"b", gguf_type("F32"), {3}, 12}};
  const auto bytes = counting(48);
  {
    auto writer = GgufWriter::create(path, keys, specs);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->write(bytes));
    const auto status = writer->commit();
    ASSERT_TRUE(status) << status.error().message;
  }
  const auto file = open_gguf(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->keys.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(file->keys[i].name, keys[i].name);
    EXPECT_TRUE(same_value(file->keys[i].value, keys[i].value));
  }
  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors[1].shape, std::vector<std::int64_t>{3});
  EXPECT_TRUE(std::ranges::equal(file->tensors[0].bytes, ByteSpan(bytes).first(36)));
  EXPECT_TRUE(std::ranges::equal(file->tensors[1].bytes, ByteSpan(bytes).subspan(36)));
}

}  // namespace
}  // namespace packstone
