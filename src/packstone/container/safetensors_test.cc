// Proves that safetensors files are read as the reference library reads them, that the writer's
// files come back bit for bit, and that folders load by their index alone.
#include "packstone/container/safetensors.h"

#include "packstone/base/limits.h"
#include "packstone/container/test_files.h"

namespace packstone {
namespace {

using namespace testing_files;
namespace fs = std::filesystem;

// The set keeps its file alive.
Result<SafetensorsSet> parse(FileBytes file) {
  const auto owner = std::make_shared<const FileBytes>(std::move(file));
  return parse_safetensors(owner->span(), owner, "test");
}

std::string content(ByteSpan bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::byte> counting(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST(SafetensorsReader, SEC13_TrueEmptyTensorLoads) {
  const auto set = parse(safetensors_file(
      "{" + entry("a", "U8", "4", "0,4") + "," + entry("e", "F32", "0,4", "4,4") + "}", 4));
  PACKSTONE_ASSERT_OK(set);
  ASSERT_NE(set->find("e"), nullptr);
  EXPECT_TRUE(set->find("e")->bytes.empty());
  EXPECT_EQ(set->find("e")->shape, (std::vector<std::int64_t>{0, 4}));
}

TEST(SafetensorsReader, CON02_MetadataEmptyAbsentLastOrNull) {
  const std::string w = entry("w", "U8", "4", "0,4");
  for (const std::string& header :
       {"{\"__metadata__\":{}," + w + "}", "{" + w + "}", "{" + w + ",\"__metadata__\":{}}",
        "{\"__metadata__\":null," + w + "}"}) {
    const auto set = parse(safetensors_file(header, 4));
    PACKSTONE_ASSERT_OK(set);
    EXPECT_EQ(set->tensors.size(), 1u);
    EXPECT_TRUE(set->metadata.empty());
  }
  const auto set =
      parse(safetensors_file("{" + w + R"(,"__metadata__":{"format":"pt","\u00fc":""}})", 4));
  PACKSTONE_ASSERT_OK(set);
  EXPECT_EQ(set->metadata.at("format"), "pt");
  EXPECT_EQ(set->metadata.at("\xC3\xBC"), "");
}

TEST(SafetensorsReader, CON03_TensorsAtAnyAddress) {
  const ScratchFolder folder;
  const std::string members = entry("u", "U8", "3", "0,3") + "," + entry("b", "BF16", "2", "3,7") +
                              "," + entry("f", "F32", "2", "7,15") + "," +
                              entry("i", "I32", "1", "15,19");
  const std::string header = "{" + members + "}";
  std::vector<std::string> values;
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const auto set = open_safetensors(
        folder.file("m.safetensors", safetensors_file(header + std::string(padding, ' '), 19)));
    PACKSTONE_ASSERT_OK(set);
    std::string value;
    for (const TensorView& tensor : set->tensors) value += content(tensor.bytes) + ";";
    values.push_back(value);
    const ByteSpan f = set->find("f")->bytes;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(load_le<float>(f.data())), 0x0A090807u);
  }
  for (const std::string& value : values) EXPECT_EQ(value, values[0]);
}

TEST(SafetensorsReader, CON05_HeadersNearAnyReadWindow) {
  const std::string header = "{" + entry("w", "U8", "4", "0,4") + "}";
  for (const std::size_t window : {std::size_t{4096}, std::size_t{65536}, std::size_t{100'000}})
    for (int step = -8; step <= 1; ++step) {
      const std::size_t length = window + static_cast<std::size_t>(step);
      const auto set =
          parse(safetensors_file(header + std::string(length - header.size(), ' '), 4));
      PACKSTONE_ASSERT_OK(set);
      EXPECT_EQ(content(set->tensors[0].bytes), std::string("\0\1\2\3", 4));
    }
}

TEST(SafetensorsReader, CON06_TrailingBytesAreRefusedInFilesAndFolders) {
  const ScratchFolder folder;
  const FileBytes file = safetensors_file("{" + entry("w", "U8", "4", "0,4") + "}", 4 + 16);
  const auto path = folder.file("model.safetensors", file);
  expect_refused(parse(file), ErrorCode::kCorruptData, {"16 bytes after the last tensor"});
  expect_refused(open_safetensors(path), ErrorCode::kCorruptData, {"16 bytes after"});
  expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData, {"16 bytes"});
}

TEST(SafetensorsReader, CON08_LongNamesWhole) {
  const std::string stem(63, 'n');
  const std::vector<std::string> names = {stem, stem + "a", stem + "b", std::string(200, 'x')};
  std::string members;
  for (std::size_t i = 0; i < names.size(); ++i)
    members += (i == 0 ? "" : ",") + entry(names[i], "U8", "1", fmt::format("{},{}", i, i + 1));
  const auto set = parse(safetensors_file("{" + members + "}", names.size()));
  PACKSTONE_ASSERT_OK(set);
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_NE(set->find(names[i]), nullptr);
    EXPECT_EQ(set->find(names[i])->bytes[0], static_cast<std::byte>(i));
  }
  EXPECT_EQ(set->find(stem + "c"), nullptr);
  const std::string too_long(limits::kNameBytesMax + 1, 'n');
  expect_refused(parse(safetensors_file("{" + entry(too_long, "U8", "1", "0,1") + "}", 1)),
                 ErrorCode::kCorruptData, {"4097 bytes"});
}

TEST(SafetensorsReader, OrderIsThatOfTheDataAndOtherMembersPass) {
  const auto set = parse(safetensors_file(
      R"({"z":{"note":{"a":[1,{"b":null}]},"dtype":"U8","shape":[2],"data_offsets":[2,4]},)" +
          entry("a", "U8", "2", "0,2") + "}  ",
      4));
  PACKSTONE_ASSERT_OK(set);
  ASSERT_EQ(set->tensors.size(), 2u);
  EXPECT_EQ(set->tensors[0].name, "a");
  EXPECT_EQ(set->tensors[1].name, "z");
}

TEST(SafetensorsReader, SEC11_TruncatedByOneByte) {
  FileBytes file = safetensors_file("{" + entry("w", "U8", "4", "0,4") + "}", 4);
  file.bytes().pop_back();
  expect_refused(parse(file), ErrorCode::kCorruptData, {"'w'", "truncated"});
}

TEST(SafetensorsWriter, RoundTripsEveryType) {
  const ScratchFolder folder;
  std::vector<TensorSpec> specs;
  std::uint64_t total = 0;
  for (const char* name : {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2", "U8",  "I8",   "F8_E5M2",
                           "F8_E4M3", "F8_E8M0", "I16",     "U16",     "F16", "BF16", "I32",
                           "U32",     "F32",     "C64",     "F64",     "I64", "U64"}) {
    const StorageType* type = safetensors_type(name);
    const std::vector<std::int64_t> shape = {3, 4};
    specs.push_back({fmt::format("t.{}", name), type, shape, *tensor_bytes(*type, shape)});
    total += specs.back().bytes;
  }
  specs.push_back({"scalar", safetensors_type("F32"), {}, 4});
  specs.push_back({"empty", safetensors_type("F32"), {2, 0}, 0});
  specs.push_back({"quote\"\\\n\xC3\xBC", safetensors_type("U8"), {1}, 1});
  const std::map<std::string, std::string> metadata = {{"format", "mlx"}, {"\"", "\n"}};
  const auto bytes = counting(total + 5);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    auto writer = SafetensorsWriter::create(folder.path() / "m.safetensors", specs, metadata);
    PACKSTONE_ASSERT_OK(writer);
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      PACKSTONE_ASSERT_OK(
          writer->write(ByteSpan(bytes).subspan(at, std::min(piece, bytes.size() - at))));
    PACKSTONE_ASSERT_OK(writer->commit());
    const auto set = open_safetensors(folder.path() / "m.safetensors");
    PACKSTONE_ASSERT_OK(set);
    EXPECT_EQ(set->metadata, metadata);
    ASSERT_EQ(set->tensors.size(), specs.size());
    std::size_t at = 0;
    for (const TensorSpec& spec : specs) {
      const TensorView* tensor = set->find(spec.name);
      ASSERT_NE(tensor, nullptr) << spec.name;
      EXPECT_EQ(tensor->type, spec.type);
      EXPECT_EQ(tensor->shape, spec.shape);
      EXPECT_EQ(content(tensor->bytes), content(ByteSpan(bytes).subspan(at, spec.bytes)));
      at += spec.bytes;
    }
  }
}

TEST(SafetensorsWriter, PadsTheHeaderAndPutsMetadataFirst) {
  const ScratchFolder folder;
  auto writer = SafetensorsWriter::create(
      folder.path() / "m", {{"m.qzeros", safetensors_type("I32"), {1, 1}, 4}}, {{"format", "pt"}});
  PACKSTONE_ASSERT_OK(writer);
  const auto data = std::vector<std::byte>(4, std::byte{0x77});
  PACKSTONE_ASSERT_OK(writer->write(data));
  PACKSTONE_ASSERT_OK(writer->commit());
  EXPECT_EQ(read_text(folder.path() / "m", 1000).value(),
            FileBytes()
                .text(R"({"__metadata__":{"format":"pt"},"m.qzeros":{"dtype":"I32","shape":[1,1],)"
                      R"("data_offsets":[0,4]}}  )")
                .raw("wwww")
                .bytes());
}

TEST(SafetensorsWriter, SHD01_RefusesBadSpecsAndLeavesNothing) {
  const ScratchFolder folder;
  const auto path = folder.path() / "m.safetensors";
  const StorageType* u8 = safetensors_type("U8");
  const auto refused = [&](std::vector<TensorSpec> specs, std::string_view part) {
    const auto writer = SafetensorsWriter::create(path, std::move(specs), {});
    expect_refused(writer, ErrorCode::kInvalidInput, {part});
  };
  refused({{"lm_head", u8, {1}, 1}, {"b", u8, {1}, 1}, {"lm_head", u8, {1}, 1}}, "tensors 0 and 2");
  refused({{"", u8, {1}, 1}}, "illegal name");
  refused({{"__metadata__", u8, {1}, 1}}, "illegal name");
  refused({{"\xFF", u8, {1}, 1}}, "illegal name");
  refused({{std::string(limits::kNameBytesMax + 1, 'x'), u8, {1}, 1}}, "illegal name");
  refused({{"w", u8, {2}, 1}}, "1 bytes");
  refused({{"w", nullptr, {1}, 1}}, "no type");
  refused({{"w", gguf_type("Q4_0"), {32}, 18}}, "Q4_0");
  refused({{"w", u8, {-1}, 1}}, "1 bytes");
  expect_refused(SafetensorsWriter::create(path, {}, {{"k", "\xFF"}}), ErrorCode::kInvalidInput,
                 {"'k'"});
  {
    auto writer = SafetensorsWriter::create(path, {{"w", u8, {2}, 2}}, {});
    PACKSTONE_ASSERT_OK(writer);
    const auto bytes = counting(3);
    expect_refused(writer->write(bytes), ErrorCode::kInvalidInput, {"3 bytes"});
    expect_refused(writer->commit(), ErrorCode::kInvalidInput, {"2 bytes missing"});
  }
  EXPECT_TRUE(folder.names().empty());
}

// One shard with the named one-byte tensors.
FileBytes shard(const std::vector<std::string>& names) {
  std::string members = R"("__metadata__":{"format":"pt"})";
  for (std::size_t i = 0; i < names.size(); ++i)
    members += "," + entry(names[i], "U8", "1", fmt::format("{},{}", i, i + 1));
  return safetensors_file("{" + members + "}", names.size());
}

std::string index_of(const std::map<std::string, std::string>& weight_map) {
  return nlohmann::json({{"metadata", {{"total_size", 3}}}, {"weight_map", weight_map}}).dump();
}

constexpr std::string_view kIndex = "model.safetensors.index.json";

TEST(SafetensorsFolder, LoadsShardsByTheIndexAlone) {
  const ScratchFolder folder;
  folder.file("s1.safetensors", shard({"a", "b"}));
  folder.file("s2.safetensors", shard({"c"}));
  folder.file("model.safetensors", "not a model");  // strays
  folder.file("consolidated.safetensors", shard({"a", "x"}));
  folder.file("model-00001-of-00004.safetensors", shard({"y"}));
  folder.file(
      kIndex,
      index_of({{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "s2.safetensors"}}));
  const auto set = open_safetensors_folder(folder.path());
  PACKSTONE_ASSERT_OK(set);
  EXPECT_EQ(set->tensors.size(), 3u);
  EXPECT_EQ(set->files.size(), 2u);
  EXPECT_EQ(set->find("c")->file, "s2.safetensors");
  EXPECT_EQ(set->metadata.at("format"), "pt");
}

TEST(SafetensorsFolder, SHD03_MissingShardsAreListedAtTheStart) {
  const ScratchFolder folder;
  folder.file("s1.safetensors", "opening this one would fail");
  folder.file(
      kIndex,
      index_of({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}, {"c", "s3.safetensors"}}));
  expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kNotFound,
                 {"2 of 3 shards", "'s2.safetensors'", "'s3.safetensors'"});
}

TEST(SafetensorsFolder, SHD03_NotInTheIndexIsNotTheSameAsNotInTheFile) {
  const ScratchFolder folder;
  folder.file("s1.safetensors", shard({"a", "b"}));
  folder.file(kIndex, index_of({{"a", "s1.safetensors"}}));
  expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData,
                 {"'b'", "not in the index"});
  folder.file(
      kIndex,
      index_of({{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "s1.safetensors"}}));
  expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData,
                 {"'c'", "not in the file"});
}

TEST(SafetensorsFolder, SHD01_OneTensorInTwoShards) {
  const ScratchFolder folder;
  folder.file("s1.safetensors", shard({"a", "b"}));
  folder.file("s2.safetensors", shard({"b"}));
  folder.file(kIndex, index_of({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}}));
  expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData,
                 {"'b'", "s1.safetensors", "'s2.safetensors'"});
}

TEST(SafetensorsFolder, SEC17_ShardNamesStayInTheFolder) {
  const ScratchFolder outside;
  const ScratchFolder folder;
  outside.file("x.safetensors", shard({"a"}));
  fs::create_directories(folder.path() / "sub");
  folder.file("x.safetensors", shard({"a"}));
  for (const std::string& name :
       {"../" + outside.path().filename().string() + "/x.safetensors",
        (outside.path() / "x.safetensors").string(), std::string("sub/../x.safetensors"),
        std::string(), std::string("x.safetensors\0y", 15), std::string(".."), std::string(".")}) {
    SCOPED_TRACE(name);
    folder.file(kIndex, index_of({{"a", name}}));
    expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData,
                   {"plain file name"});
  }
  fs::create_symlink(outside.path() / "x.safetensors", folder.path() / "link.safetensors");
  folder.file(kIndex, index_of({{"a", "link.safetensors"}}));
  expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData,
                 {"'link.safetensors'", "link out of the folder"});
  fs::create_symlink("x.safetensors", folder.path() / "inside.safetensors");
  folder.file(kIndex, index_of({{"a", "inside.safetensors"}}));
  PACKSTONE_ASSERT_OK(open_safetensors_folder(folder.path()));
}

TEST(SafetensorsFolder, SEC17_LinksOfTheHuggingFaceCacheAreFollowed) {
  const ScratchFolder cache;
  const fs::path snapshot = cache.path() / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(cache.path() / "blobs");
  cache.file("blobs/123", shard({"a"}));
  fs::create_symlink("../../blobs/123", snapshot / "s1.safetensors");
  cache.file("snapshots/abc/model.safetensors.index.json", index_of({{"a", "s1.safetensors"}}));
  PACKSTONE_ASSERT_OK(open_safetensors_folder(snapshot));
}

TEST(SafetensorsFolder, HostileIndexesAreRefused) {
  const ScratchFolder folder;
  folder.file("s.safetensors", shard({"a"}));
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("3"), std::string("{}"),
        std::string(R"({"weight_map":[]})"), std::string(R"({"weight_map":{"a":1}})"),
        std::string(R"({"weight_map":{"a":["s.safetensors"]}})"),
        std::string(R"({"weight_map":{"a":{"b":"s.safetensors"}}})"),
        std::string(R"({"weight_map":{"a":"s.safetensors","a":"s.safetensors"}})"),
        std::string(R"({"weight_map":{},"weight_map":{}})"),
        R"({"metadata":)" + std::string(100'000, '[')}) {
    SCOPED_TRACE(text.substr(0, 60));
    folder.file(kIndex, text);
    expect_refused(open_safetensors_folder(folder.path()), ErrorCode::kCorruptData);
  }
  folder.file(kIndex, R"({"x":[[{"weight_map":{"q":2}}]],"weight_map":{"a":"s.safetensors"}})");
  PACKSTONE_ASSERT_OK(open_safetensors_folder(folder.path()));
}

TEST(SafetensorsShards, AreFilledInOrder) {
  const auto specs = [](std::vector<std::uint64_t> sizes) {
    std::vector<TensorSpec> result;
    for (const std::uint64_t size : sizes) result.push_back({"t", nullptr, {}, size});
    return result;
  };
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(plan_shards(specs({}), 10), Counts());
  EXPECT_EQ(plan_shards(specs({4, 6, 1}), 10), (Counts{2, 1}));
  EXPECT_EQ(plan_shards(specs({4, 60, 1, 9, 0}), 10), (Counts{1, 1, 3}));
  EXPECT_EQ(plan_shards(specs({60, 60}), 10), (Counts{1, 1}));
  EXPECT_EQ(plan_shards(specs({~0ull, ~0ull, 1}), 10), (Counts{1, 1, 1}));
}

TEST(SafetensorsShards, IndexTextIsReadBack) {
  const std::vector<TensorSpec> specs = {{"b", nullptr, {}, 10}, {"a", nullptr, {}, 5}};
  EXPECT_EQ(safetensors_index_text(specs, {"2", "1"}, 7), R"({
  "metadata": {
    "total_parameters": 7,
    "total_size": 15
  },
  "weight_map": {
    "a": "1",
    "b": "2"
  }
}
)");
}

}  // namespace
}  // namespace packstone
