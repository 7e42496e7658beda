// Proves the tables of storage types, the size rule, the names' rules, and that every attack on a
// parser ends in an ordinary error that names the culprit.
#include "packstone/container/container.h"

#include <sys/stat.h>

#include "packstone/base/limits.h"
#include "packstone/container/gguf.h"
#include "packstone/container/hostile_files.h"
#include "packstone/container/names.h"
#include "packstone/container/safetensors.h"

namespace packstone {
namespace {

using namespace testing_files;

TEST(TensorBytes, CountsBlocksAndChecksEveryStep) {
  const StorageType& f32 = *safetensors_type("F32");
  const StorageType& q4_0 = *gguf_type("Q4_0");
  EXPECT_EQ(tensor_bytes(f32, {}), 4u);
  EXPECT_EQ(tensor_bytes(f32, {2, 3}), 24u);
  EXPECT_EQ(tensor_bytes(f32, {0, 4}), 0u);
  EXPECT_EQ(tensor_bytes(q4_0, {3, 64}), 3u * 2 * 18);
  EXPECT_EQ(tensor_bytes(q4_0, {64, 3}), std::nullopt);
  EXPECT_EQ(tensor_bytes(q4_0, {}), std::nullopt);
  EXPECT_EQ(tensor_bytes(f32, {-1}), std::nullopt);
  EXPECT_EQ(tensor_bytes(f32, {-1, -1}), std::nullopt);
  EXPECT_EQ(tensor_bytes(f32, {std::int64_t{1} << 32, std::int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(tensor_bytes(f32, {std::int64_t{1} << 62}), std::nullopt);
  EXPECT_EQ(tensor_bytes(*safetensors_type("F4"), {3, 2}), 3u);
  EXPECT_EQ(tensor_bytes(*safetensors_type("F6_E2M3"), {2, 4}), 6u);
}

TEST(StorageTypes, AreFoundByTheirExactNameAlone) {
  for (const char* name : {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16",
                           "BF16", "F32", "F64", "C64", "F8_E4M3", "F8_E5M2", "F8_E8M0"})
    EXPECT_NE(safetensors_type(name), nullptr) << name;
  for (const char* name : {"", "f32", "F33", "Q4_0", "F32 "})
    EXPECT_EQ(safetensors_type(name), nullptr) << name;
  int count = 0;
  for (std::int32_t id = -2; id < 300; ++id) {
    const StorageType* type = gguf_type(id);
    if (type == nullptr) continue;
    ++count;
    EXPECT_EQ(gguf_type(type->name), type);
    EXPECT_EQ(type->gguf_id, id);
  }
  EXPECT_EQ(count, 35);
  for (const std::int32_t removed : {-1, 4, 5, 31, 33, 36, 38, 43})
    EXPECT_EQ(gguf_type(removed), nullptr) << removed;
  EXPECT_EQ(gguf_type(std::int32_t{12})->name, "Q4_K");
  EXPECT_EQ(gguf_type("IQ4_XS")->block_bytes, 136);
}

TEST(Names, Utf8IsStrict) {
  for (const char* good : {"", "a", "\xC2\x80", "\xE0\xA0\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
                           "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"})
    EXPECT_TRUE(is_utf8(good));
  for (const char* bad : {"\x80", "\xC1\xBF", "\xC2", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "a\xFF"})
    EXPECT_FALSE(is_utf8(bad));
}

TEST(Names, MessagesShowNoControlCharacters) {
  EXPECT_EQ(shown("a\x1b[31m\n\x7F\xC2\x9B\xFF"), "'a\\x1B[31m\\x0A\\x7F\\xC2\\x9B\\xFF'");
  EXPECT_EQ(shown("gr\xC3\xBC\xC3\x9F"), "'gr\xC3\xBC\xC3\x9F'");
  EXPECT_LT(shown(std::string(100'000, 'x')).size(), 300u);
}

TEST(Names, PlainFileNamesStayInTheFolder) {
  EXPECT_TRUE(is_plain_file_name("model-00001-of-00002.safetensors"));
  EXPECT_TRUE(is_plain_file_name("..a"));
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("."), std::string_view(".."),
        std::string_view("../a"), std::string_view("/a"), std::string_view("a/b"),
        std::string_view("a\\b"), std::string_view("a\0b", 3)})
    EXPECT_FALSE(is_plain_file_name(bad)) << bad;
}

// SEC-13.small becomes SEC13_small.
std::string test_name(const testing::TestParamInfo<HostileFile>& info) {
  std::string name = info.param.name;
  std::erase(name, '-');
  std::ranges::replace(name, '.', '_');
  return name;
}

// From memory and from a file: an ordinary error that names the culprit, and nothing left behind.
template <class Parse, class Open>
void expect_named_refusal(const HostileFile& hostile, Parse parse, Open open) {
  SCOPED_TRACE(hostile.tries);
  expect_refused(parse(hostile.bytes.span(), nullptr, "hostile"), ErrorCode::kCorruptData,
                 {hostile.named});
  const ScratchFolder folder;
  expect_refused(open(folder.file("hostile", hostile.bytes)), ErrorCode::kCorruptData,
                 {hostile.named});
  EXPECT_EQ(folder.names().size(), 1u);
}

class HostileGguf : public testing::TestWithParam<HostileFile> {};
TEST_P(HostileGguf, IsRefusedByName) {
  expect_named_refusal(GetParam(), parse_gguf, open_gguf);
}
INSTANTIATE_TEST_SUITE_P(Attack, HostileGguf, testing::ValuesIn(hostile_gguf_files()), test_name);

class HostileSafetensors : public testing::TestWithParam<HostileFile> {};
TEST_P(HostileSafetensors, IsRefusedByName) {
  expect_named_refusal(GetParam(), parse_safetensors, open_safetensors);
}
INSTANTIATE_TEST_SUITE_P(Attack, HostileSafetensors, testing::ValuesIn(hostile_safetensors_files()),
                         test_name);

TEST(FileMap, TellsMissingAndSpecialFiles) {
  const ScratchFolder folder;
  const auto absent = folder.path() / "absent";
  expect_refused(open_gguf(absent), ErrorCode::kNotFound, {"absent"});
  expect_refused(open_safetensors(absent), ErrorCode::kNotFound, {"absent"});
  expect_refused(open_safetensors_folder(absent), ErrorCode::kNotFound, {"absent"});
  expect_refused(open_gguf(folder.path()), ErrorCode::kIo, {"a folder"});
  expect_refused(open_safetensors("/dev/null"), ErrorCode::kIo, {"special file"});
  expect_refused(read_text(absent, 10), ErrorCode::kNotFound, {"absent"});
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(open_gguf(pipe), ErrorCode::kIo, {"special file"});  // and does not wait
  const auto small = folder.file("small", "0123456789");
  expect_refused(read_text(small, 9), ErrorCode::kExhausted, {"10 bytes"});
  EXPECT_EQ(read_text(small, 10).value(), "0123456789");
  const auto empty = FileMap::open(folder.file("empty", ""));
  PACKSTONE_ASSERT_OK(empty);
  EXPECT_TRUE((*empty)->bytes().empty());
}

}  // namespace
}  // namespace packstone
