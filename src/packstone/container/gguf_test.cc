// Proves that GGUF files of every value type are read and written bit for bit, that unusual but
// valid files load, and that split sets load whole from any part or not at all.
#include "packstone/container/gguf.h"

#include <limits>

#include "packstone/base/limits.h"
#include "packstone/container/hostile_files.h"

namespace packstone {
namespace {

using namespace testing_files;
namespace fs = std::filesystem;

// The parsed file keeps its bytes alive.
Result<GgufFile> parse(FileBytes file) {
  const auto owner = std::make_shared<const FileBytes>(std::move(file));
  return parse_gguf(owner->span(), owner, "test");
}

std::vector<std::byte> counting(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

// One key of each type, arrays of each type, empty arrays and nested ones.
std::vector<GgufKey> every_kind_of_key() {
  const float nan = std::bit_cast<float>(0x7FC12345u);
  return {
      {"u8", std::uint8_t{255}},
      {"i8", std::int8_t{-128}},
      {"u16", std::uint16_t{65535}},
      {"i16", std::int16_t{-32768}},
      {"u32", std::uint32_t{4294967295u}},
      {"i32", std::int32_t{INT32_MIN}},
      {"f32", nan},
      {"bool", true},
      {"string", std::string("a\0b\xFF", 4)},
      {"u64", std::uint64_t{UINT64_MAX}},
      {"i64", std::int64_t{INT64_MIN}},
      {"f64", -0.0},
      {"a.u8", GgufArray{std::vector<std::uint8_t>{1, 2}}},
      {"a.i8", GgufArray{std::vector<std::int8_t>{-1}}},
      {"a.u16", GgufArray{std::vector<std::uint16_t>{1, 2}}},
      {"a.i16", GgufArray{std::vector<std::int16_t>{-1}}},
      {"a.u32", GgufArray{std::vector<std::uint32_t>{1, 2}}},
      {"a.i32", GgufArray{std::vector<std::int32_t>{-1}}},
      {"a.f32", GgufArray{std::vector<float>{nan, 1.0f}}},
      {"a.bool", GgufArray{std::vector<bool>{true, false, true}}},
      {"a.string", GgufArray{std::vector<std::string>{"", "x", std::string(100, 'y')}}},
      {"a.u64", GgufArray{std::vector<std::uint64_t>{UINT64_MAX}}},
      {"a.i64", GgufArray{std::vector<std::int64_t>{INT64_MIN}}},
      {"a.f64", GgufArray{std::vector<double>{0.1}}},
      {"a.empty", GgufArray{std::vector<float>{}}},
      {"a.nested",
       GgufArray{std::vector<GgufArray>{{std::vector<GgufArray>{{std::vector<bool>{true}}}},
                                        {std::vector<std::string>{"z"}},
                                        {std::vector<double>{}}}}},
  };
}

void expect_same_keys(const std::vector<GgufKey>& a, const std::vector<GgufKey>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_TRUE(same_value(a[i].value, b[i].value)) << a[i].name;
  }
}

TEST(GgufWriter, RoundTripsEveryValueAndTensorType) {
  const ScratchFolder folder;
  std::vector<TensorSpec> specs;
  std::uint64_t total = 0;
  for (std::int32_t id = 0; id < 64; ++id) {
    const StorageType* type = gguf_type(id);
    if (type == nullptr) continue;
    const std::vector<std::int64_t> shape = {3, 2 * type->block_cols};
    specs.push_back({fmt::format("t.{}", type->name), type, shape, *tensor_bytes(*type, shape)});
    if (id == 8) specs.push_back({"empty", type, {0, 32}, 0});
    total += *tensor_bytes(*type, shape);
  }
  specs.push_back({"scalar", gguf_type("F32"), {}, 4});
  const auto bytes = counting(total + 4);
  for (const std::uint32_t alignment : {0u, 1u, 64u, 65536u})
    for (const std::size_t piece : {std::size_t{13}, bytes.size()}) {
      auto keys = every_kind_of_key();
      if (alignment > 0) keys.push_back({"general.alignment", alignment});
      auto writer = GgufWriter::create(folder.path() / "m.gguf", keys, specs);
      PACKSTONE_ASSERT_OK(writer);
      for (std::size_t at = 0; at < bytes.size(); at += piece)
        PACKSTONE_ASSERT_OK(
            writer->write(ByteSpan(bytes).subspan(at, std::min(piece, bytes.size() - at))));
      PACKSTONE_ASSERT_OK(writer->commit());
      const auto file = open_gguf(folder.path() / "m.gguf");
      PACKSTONE_ASSERT_OK(file);
      EXPECT_EQ(file->alignment, alignment == 0 ? 32 : alignment);
      expect_same_keys(file->keys, keys);
      ASSERT_EQ(file->tensors.size(), specs.size());
      std::size_t at = 0;
      for (std::size_t i = 0; i < specs.size(); ++i) {
        EXPECT_EQ(file->tensors[i].name, specs[i].name);
        EXPECT_EQ(file->tensors[i].type, specs[i].type);
        EXPECT_EQ(file->tensors[i].shape, specs[i].shape);
        EXPECT_TRUE(std::ranges::equal(file->tensors[i].bytes,
                                       ByteSpan(bytes).subspan(at, specs[i].bytes)));
        at += specs[i].bytes;
      }
    }
}

TEST(GgufWriter, SHD01_RefusesBadKeysAndSpecsAndLeavesNothing) {
  const ScratchFolder folder;
  const auto path = folder.path() / "m.gguf";
  const StorageType* f32 = gguf_type("F32");
  const auto refused = [&](std::vector<GgufKey> keys, std::vector<TensorSpec> specs,
                           std::string_view part) {
    expect_refused(GgufWriter::create(path, std::move(keys), std::move(specs)),
                   ErrorCode::kInvalidInput, {part});
  };
  refused({}, {{"w", f32, {1}, 4}, {"w", f32, {1}, 4}}, "tensors 0 and 1");
  refused({}, {{"", f32, {1}, 4}}, "illegal name");
  refused({}, {{"w", f32, {1}, 5}}, "5 bytes");
  refused({}, {{"w", f32, {1, 1, 1, 1, 1}, 4}}, "5 axes");
  refused({}, {{"w", nullptr, {1}, 4}}, "no type");
  refused({}, {{"w", safetensors_type("F32"), {1}, 4}}, "F32");
  refused({}, {{"w", gguf_type("Q4_0"), {31}, 18}}, "whole blocks");
  refused({{"k", true}, {"k", false}}, {}, "'k'");
  refused({{"", true}}, {}, "illegal name");
  refused({{std::string(70'000, 'k'), true}}, {}, "illegal name");
  refused({{"general.alignment", std::uint32_t{48}}}, {}, "general.alignment");
  refused({{"general.alignment", std::int32_t{32}}}, {}, "general.alignment");
  GgufArray deep{std::vector<float>{}};
  for (int i = 0; i < limits::kGgufArrayDepthMax; ++i)
    deep = GgufArray{std::vector<GgufArray>{deep}};
  refused({{"deep", deep}}, {}, "'deep'");
  {
    auto writer = GgufWriter::create(path, {}, {{"w", f32, {2}, 8}, {"x", f32, {1}, 4}});
    PACKSTONE_ASSERT_OK(writer);
    const auto bytes = counting(13);
    PACKSTONE_ASSERT_OK(writer->write(ByteSpan(bytes).first(11)));
    expect_refused(writer->commit(), ErrorCode::kInvalidInput, {"1 of 2"});
    expect_refused(writer->write(ByteSpan(bytes).first(2)), ErrorCode::kInvalidInput,
                   {"after the last tensor"});
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(GgufReader, SEC02_ZeroDimensionIsAnEmptyTensor) {
  for (const std::vector<std::uint64_t>& dims :
       {std::vector<std::uint64_t>{1, 0}, std::vector<std::uint64_t>{0, 4, 1}}) {
    FileBytes file;
    file.gguf(1, 0).tensor("w", dims, 0, 0);
    ASSERT_LT(file.bytes().size(), 100u);
    for (const std::size_t alignment : {std::size_t{1}, std::size_t{32}}) {
      const auto parsed = parse(file.align(alignment));
      if (alignment == 1) {
        // Without the padding that the format promises before the data there is no place for it.
        expect_refused(parsed, ErrorCode::kCorruptData, {"tensor data"});
        continue;
      }
      PACKSTONE_ASSERT_OK(parsed);
      EXPECT_TRUE(parsed->tensors[0].bytes.empty());
      EXPECT_EQ(parsed->tensors[0].shape.size(), dims.size());
    }
  }
}

TEST(GgufReader, SEC04_AlignmentOneIsFineAndOneBadFileHarmsNoOther) {
  FileBytes file;
  file.gguf(2, 1).key("general.alignment", 4).put<std::uint32_t>(1);
  file.tensor("a", {3}, 24, 0).tensor("b", {2}, 24, 3).zeros(5);
  const auto parsed = parse(file);
  PACKSTONE_ASSERT_OK(parsed);
  EXPECT_EQ(parsed->alignment, 1u);
  const ScratchFolder folder;
  const auto good = folder.file("good.gguf", one_tensor({8}, 0, 0, 32));
  for (const HostileFile& hostile : hostile_gguf_files()) {
    if (!hostile.name.starts_with("SEC-04")) continue;
    expect_refused(open_gguf(folder.file("bad.gguf", hostile.bytes)), ErrorCode::kCorruptData);
    const auto opened = open_gguf(good);
    PACKSTONE_ASSERT_OK(opened);
    EXPECT_EQ(opened->alignment, 32u);
  }
}

TEST(GgufReader, SEC07_NestingToTheLimit) {
  for (int depth = 1; depth <= limits::kGgufArrayDepthMax; ++depth) {
    const auto parsed = parse(one_key("x", 9, nested_arrays(depth)));
    PACKSTONE_ASSERT_OK(parsed);
    const auto* array = std::get_if<GgufArray>(parsed->find("x"));
    for (int i = 1; i < depth; ++i) array = &std::get<std::vector<GgufArray>>(array->items).at(0);
    EXPECT_EQ(std::get<std::vector<std::uint32_t>>(array->items).at(0), 7u);
  }
  expect_refused(parse(one_key("x", 9, nested_arrays(limits::kGgufArrayDepthMax + 1))),
                 ErrorCode::kCorruptData, {"'x'", "nested deeper"});
}

TEST(GgufReader, SEC11_CutByOneByte) {
  FileBytes file = one_tensor({16}, 0, 0, 64);
  PACKSTONE_ASSERT_OK(parse(file));
  file.bytes().pop_back();
  expect_refused(parse(file), ErrorCode::kCorruptData, {"'weight'", "truncated"});
}

// Type 40 has 36 bytes for 64 weights in ggml and 12 in GPTQModel 7.3.
TEST(GgufReader, TypeNumbersOfGptqmodelAreNamed) {
  const auto of_blocks = [](std::uint64_t first_bytes, std::uint64_t cols) {
    FileBytes file;
    file.gguf(2, 0).tensor("w", {cols, 2}, 40, 0).tensor("x", {8}, 0, first_bytes);
    return file.align(32).zeros(first_bytes + 32);
  };
  PACKSTONE_ASSERT_OK(parse(of_blocks(2 * 8 * 36, 512)));
  for (const FileBytes& file : {of_blocks(2 * 8 * 12, 512), of_blocks(2 * 3 * 6 + 28, 96)})
    expect_refused(parse(file), ErrorCode::kCorruptData, {"NVFP4", "GPTQModel 7.3", "Q1_0"});
  FileBytes last = one_tensor({512, 2}, 40, 0, 2 * 8 * 12);
  expect_refused(parse(last), ErrorCode::kCorruptData, {"NVFP4", "GPTQModel 7.3", "Q1_0"});
}

TEST(GgufReader, CON08_LongNamesWhole) {
  const std::string stem(63, 'n');
  const std::vector<std::string> names = {stem, stem + "a", stem + "b", std::string(200, 'x')};
  FileBytes file;
  file.gguf(names.size(), 0);
  for (std::size_t i = 0; i < names.size(); ++i) file.tensor(names[i], {32}, 24, i * 32);
  const auto parsed = parse(file.align(32).zeros(32 * names.size()));
  PACKSTONE_ASSERT_OK(parsed);
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(parsed->tensors[i].name, names[i]);
  FileBytes long_name;
  long_name.gguf(1, 0).tensor(std::string(limits::kNameBytesMax + 1, 'n'), {32}, 24, 0);
  expect_refused(parse(long_name.align(32).zeros(32)), ErrorCode::kCorruptData, {"4097 bytes"});
}

TEST(GgufReader, VersionsAndByteOrder) {
  const auto of_version = [](std::uint32_t version) {
    return FileBytes().raw("GGUF").put(version).zeros(16);
  };
  PACKSTONE_ASSERT_OK(parse(of_version(2)));
  PACKSTONE_ASSERT_OK(parse(of_version(3)));
  expect_refused(parse(of_version(1)), ErrorCode::kUnsupported, {"version 1"});
  expect_refused(parse(of_version(4)), ErrorCode::kUnsupported, {"version 4"});
  expect_refused(parse(of_version(3u << 24)), ErrorCode::kUnsupported, {"big-endian"});
  expect_refused(parse(of_version(0)), ErrorCode::kCorruptData, {"version 0"});
  expect_refused(parse(FileBytes("GGML")), ErrorCode::kCorruptData, {"magic"});
  expect_refused(parse(FileBytes()), ErrorCode::kCorruptData, {"magic"});
  expect_refused(parse(one_tensor({8}, 4, 0, 32)), ErrorCode::kUnsupported,
                 {"'weight'", "tensor type 4"});
}

TEST(GgufReader, LastPaddingMayBeAbsent) {
  PACKSTONE_ASSERT_OK(parse(one_tensor({9}, 0, 0, 36)));
  PACKSTONE_ASSERT_OK(parse(one_tensor({9}, 0, 0, 64)));
  expect_refused(parse(one_tensor({9}, 0, 0, 65)), ErrorCode::kCorruptData, {"1 bytes after"});
}

TEST(GgufFile, TypedReads) {
  GgufFile file;
  file.keys = every_kind_of_key();
  EXPECT_EQ(file.integer("absent").value(), std::nullopt);
  EXPECT_EQ(file.integer("u8").value(), 255);
  EXPECT_EQ(file.integer("i64").value(), INT64_MIN);
  EXPECT_EQ(file.number("u32").value(), 4294967295.0);
  EXPECT_EQ(file.number("f64").value(), 0.0);
  EXPECT_EQ(file.text("string").value(), std::string("a\0b\xFF", 4));
  EXPECT_EQ(file.boolean("bool").value(), true);
  expect_refused(file.integer("u64"), ErrorCode::kCorruptData, {"'u64'", "18446744073709551615"});
  expect_refused(file.integer("bool"), ErrorCode::kCorruptData, {"'bool'", "type bool"});
  expect_refused(file.integer("f32"), ErrorCode::kCorruptData, {"'f32'", "an integer"});
  expect_refused(file.number("string"), ErrorCode::kCorruptData, {"'string'", "a number"});
  expect_refused(file.text("a.u8"), ErrorCode::kCorruptData, {"'a.u8'", "type array"});
  expect_refused(file.boolean("u8"), ErrorCode::kCorruptData, {"'u8'", "a bool"});
}

// A part of a split set with one I8 tensor of 32 bytes.
struct Part {
  std::string tensor;
  std::uint16_t number;
  std::uint16_t count;
  std::int32_t total;
  std::string extra_key = {};
  std::string extra_value = {};
};

FileBytes part_file(const Part& part) {
  FileBytes file;
  file.gguf(1, part.extra_key.empty() ? 3 : 4);
  file.key("split.no", 2).put(part.number).key("split.count", 2).put(part.count);
  file.key("split.tensors.count", 5).put(part.total);
  if (!part.extra_key.empty()) file.key(part.extra_key, 8).text(part.extra_value);
  return file.tensor(part.tensor, {32}, 24, 0).align(32).zeros(32);
}

class GgufSplit : public testing::Test {
 protected:
  fs::path name(int part) const {
    return folder_.path() / fmt::format("m-{:05}-of-00003.gguf", part);
  }
  void write(int part, const Part& content) {
    folder_.file(name(part).filename().string(), part_file(content));
  }
  void SetUp() override {
    write(1, {"a", 0, 3, 3, "general.architecture", "llama"});
    write(2, {"b", 1, 3, 3});
    write(3, {"c", 2, 3, 3});
  }
  void expect_all_refused(ErrorCode code, std::initializer_list<std::string_view> parts) {
    for (int part = 1; part <= 3; ++part) {
      SCOPED_TRACE(part);
      if (fs::exists(name(part))) expect_refused(open_gguf(name(part)), code, parts);
    }
  }
  ScratchFolder folder_;
};

TEST_F(GgufSplit, SHD04_WholeSetFromAnyPart) {
  folder_.file("m-00001-of-00002.gguf", "a stray of another set");
  for (int part = 1; part <= 3; ++part) {
    const auto file = open_gguf(name(part));
    PACKSTONE_ASSERT_OK(file);
    ASSERT_EQ(file->tensors.size(), 3u);
    EXPECT_EQ(file->tensors[2].name, "c");
    EXPECT_EQ(file->files.size(), 3u);
    ASSERT_EQ(file->keys.size(), 1u);
    EXPECT_EQ(file->text("general.architecture").value(), "llama");
  }
}

TEST_F(GgufSplit, SHD04_MissingPartsAreListed) {
  fs::remove(name(3));
  expect_all_refused(ErrorCode::kNotFound, {"'m-00003-of-00003.gguf'"});
}

TEST_F(GgufSplit, SHD04_CountsThatDisagree) {
  write(2, {"b", 1, 2, 3});
  expect_refused(open_gguf(name(1)), ErrorCode::kCorruptData, {"m-00002", "split.count 2"});
  expect_refused(open_gguf(name(2)), ErrorCode::kCorruptData, {"m-00002", "split.count 2"});
}

TEST_F(GgufSplit, SHD04_NumbersFromOne) {
  write(1, {"a", 1, 3, 3});
  write(2, {"b", 2, 3, 3});
  write(3, {"c", 3, 3, 3});
  expect_all_refused(ErrorCode::kCorruptData, {"split.no", "counts from 0"});
}

TEST_F(GgufSplit, SHD04_WrongTotals) {
  write(2, {"b", 1, 3, 4});
  expect_all_refused(ErrorCode::kCorruptData, {"m-00002", "split.tensors.count 4"});
  write(1, {"a", 0, 3, 4});
  write(3, {"c", 2, 3, 4});
  expect_all_refused(ErrorCode::kCorruptData, {"3 tensors in all parts", "4"});
}

TEST_F(GgufSplit, SHD04_PartsOfTwoModels) {
  write(2, {"b", 1, 3, 3, "general.architecture", "qwen2"});
  expect_all_refused(ErrorCode::kCorruptData, {"m-00002", "'general.architecture'"});
}

TEST_F(GgufSplit, SHD01_OneTensorInTwoParts) {
  write(3, {"a", 2, 3, 3});
  expect_all_refused(ErrorCode::kCorruptData, {"'a'", "m-00001", "m-00003"});
}

TEST_F(GgufSplit, SHD04_RenamedPart) {
  fs::rename(name(2), folder_.path() / "part.gguf");
  expect_refused(open_gguf(folder_.path() / "part.gguf"), ErrorCode::kCorruptData,
                 {"split.no 1", "-00002-of-00003.gguf"});
}

TEST_F(GgufSplit, SEC17_SiblingsStayInTheFolder) {
  const ScratchFolder outside;
  outside.file("x.gguf", part_file({"b", 1, 3, 3}));
  fs::remove(name(2));
  fs::create_symlink(outside.path() / "x.gguf", name(2));
  expect_refused(open_gguf(name(1)), ErrorCode::kCorruptData, {"link out of the folder"});
}

TEST_F(GgufSplit, HostileCounts) {
  write(1, {"a", 0, 65535, 3});
  expect_refused(open_gguf(name(1)), ErrorCode::kCorruptData, {"split.count 65535"});
  write(1, {"a", 0, 0, 3});  // not split by its own word, but the total says otherwise
  expect_refused(open_gguf(name(1)), ErrorCode::kCorruptData, {"1 tensors"});
  write(1, {"a", 0, 1, 1});
  PACKSTONE_ASSERT_OK(open_gguf(name(1)));
}

}  // namespace
}  // namespace packstone
