// EXL3 and ParoQuant modules are held to the shapes and types of their layouts at the door; what a
// file says otherwise is refused by tensor and key.
#include "packstone/checkpoint/describe_module.h"

#include <gtest/gtest.h>

#include "packstone/checkpoint/checkpoint.h"
#include "tests/support/packed_folders.h"
#include "tests/support/reopened_folders.h"

namespace packstone {
namespace {

constexpr std::string_view kUp = "model.layers.0.mlp.up_proj";

tiny::Tensor& up(tiny::Folder& made, std::string_view suffix) {
  return made.at(fmt::format("{}{}", kUp, suffix));
}

// Gives the tensor another shape, with bytes to match.
void reshape(tiny::Folder& made, std::string_view suffix, std::vector<std::int64_t> shape) {
  tiny::Tensor& tensor = up(made, suffix);
  std::mt19937 random(1);
  tensor = tiny::small_tensor(tensor.name, tensor.type, std::move(shape), random);
}

TEST(DescribeModuleTest, Exl3ShapesAtTheDoor) {
  const tiny::Folder good = tiny::exl3_folder();
  const Result<Checkpoint> checkpoint = reopen(good);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->unbound.empty() && checkpoint->problems.empty());
  ASSERT_EQ(checkpoint->unsupported.size(), 7u);
  EXPECT_EQ(checkpoint->unsupported[0].bits, 3);
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> wrong = {
      {".trellis", {16, 16, 47}},
      {".trellis", {16, 16, 144}},
      {".trellis", {16, 8, 48}},
      {".trellis", {8, 16, 48}},
      {".trellis", {256, 48}},
      {".trellis", {16, 16, 0}},
      {".suh", {128}},
      {".suh", {256, 1}},
      {".svh", {255}},
      {".mcg", {2}}};
  for (const auto& [suffix, shape] : wrong) {
    tiny::Folder made = good;
    reshape(made, suffix, shape);
    expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}{}", kUp, suffix), "exl3"});
  }
  for (const auto& [suffix, type] :
       {std::pair(".trellis", "I32"), {".suh", "F32"}, {".svh", "BF16"}, {".mcg", "F32"}}) {
    tiny::Folder made = good;
    std::mt19937 random(1);
    tiny::Tensor& tensor = up(made, suffix);
    tensor = tiny::small_tensor(tensor.name, type, tensor.shape, random);
    expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}{}", kUp, suffix), type});
  }
  tiny::Folder made = good;
  made.tensors.push_back(up(made, ".suh"));
  made.tensors.back() = {fmt::format("{}.su", kUp), "I16", {16}, std::vector<std::byte>(32)};
  expect_refused(made, ErrorCode::kCorruptData, {".su", "one of the two"});
  made = good;
  made.erase(fmt::format("{}.svh", kUp));
  expect_refused(made, ErrorCode::kCorruptData, {".svh", "no such tensor"});
}

// The config against the tensors: bits, codebook, format of a module.
TEST(DescribeModuleTest, Exl3ConfigAgainstTensors) {
  const tiny::Folder good = tiny::exl3_folder();
  const auto with_storage = [&](const std::string& key, const tiny::Json& value) {
    tiny::Folder made = good;
    tiny::Json json = tiny::Json::parse(made.texts["quantization_config.json"]);
    json["tensor_storage"][std::string(kUp)][key] = value;
    made.texts["quantization_config.json"] = json.dump();
    return made;
  };
  expect_refused(with_storage("bits_per_weight", 4), ErrorCode::kCorruptData,
                 {".trellis", "3 bits", "4 bits", "tensor_storage"});
  expect_refused(with_storage("quant_format", "exl4"), ErrorCode::kUnsupported,
                 {"quantization_config.json", std::string(kUp), "exl4"});
  tiny::Folder made = good;
  made.config["quantization_config"]["codebook"] = "mul1";
  made.texts.clear();
  expect_refused(made, ErrorCode::kCorruptData, {"codebook mcg", "codebook mul1"});
  made.config["quantization_config"]["codebook"] = "mcg";
  EXPECT_TRUE(reopen(made));
  // The file apart may not say another thing than the config.
  made = good;
  made.config["quantization_config"]["quant_method"] = "gptq";
  expect_refused(made, ErrorCode::kCorruptData, {"gptq", "exl3"});
}

// CFG-09: an unknown codebook or layout mark is refused by its path, before any tensor is looked
// at.
TEST(DescribeModuleTest, Cfg09Exl3UnknownMarks) {
  for (const auto& [key, value] : {std::pair("codebook", "spiral"), {"format", "exl3_tiled"}}) {
    tiny::Folder made = tiny::exl3_folder();
    made.texts.clear();
    made.config["quantization_config"][key] = value;
    made.tensors.clear();
    std::mt19937 random(1);
    made.tensors.push_back(tiny::small_tensor("nothing", "F32", {1}, random));
    expect_refused(made, ErrorCode::kUnsupported,
                   {"config.json", fmt::format("quantization_config.{}", key), value});
  }
}

TEST(DescribeModuleTest, ParoQuantShapesAtTheDoor) {
  const tiny::Folder good = tiny::paroquant_folder();
  const Result<Checkpoint> checkpoint = reopen(good);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->unbound.empty());
  ASSERT_EQ(checkpoint->unsupported.size(), 7u);
  EXPECT_EQ(checkpoint->unsupported[0].detail, "paroquant 4 bit g64 krot 8");
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> wrong = {
      {".qweight", {32, 256}},      {".qzeros", {2, 32}}, {".scales", {256, 4}},
      {".theta", {4, 128}},         {".theta", {8, 256}}, {".pairs", {4, 256}},
      {".channel_scales", {256, 1}}};
  for (const auto& [suffix, shape] : wrong) {
    tiny::Folder made = good;
    reshape(made, suffix, shape);
    expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}{}", kUp, suffix), "paroquant"});
  }
  for (const auto& [suffix, type] :
       {std::pair(".theta", "BF16"), {".pairs", "I32"}, {".channel_scales", "F32"}}) {
    tiny::Folder made = good;
    std::mt19937 random(1);
    tiny::Tensor& tensor = up(made, suffix);
    tensor = tiny::small_tensor(tensor.name, type, tensor.shape, random);
    expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}{}", kUp, suffix), type});
  }
  tiny::Folder made = good;
  made.config["quantization_config"]["krot"] = 4;
  expect_refused(made, ErrorCode::kCorruptData, {".theta", "[4, 128]"});
}

TEST(DescribeModuleTest, ParoQuantPairsArePermutations) {
  // A channel twice, one beyond its group, a negative one; in the first and the last group.
  for (const auto& [at, value] :
       {std::pair(1, 0), {3, 64}, {8 * 256 - 1, -1}, {7 * 256 + 200, 63}}) {
    tiny::Folder made = tiny::paroquant_folder();
    tiny::Tensor& pairs = up(made, ".pairs");
    std::byte* place = pairs.bytes.data() + 2 * at;
    if (load_le<std::int16_t>(place) == value) place += at == 1 ? -2 : 2;
    store_le(place, static_cast<std::int16_t>(value));
    expect_refused(made, ErrorCode::kCorruptData,
                   {fmt::format("{}.pairs", kUp), "once in every group"});
  }
}

// GRP-04: ParoQuant of other group sizes, a group that does not divide, and QQQ: right or refused.
TEST(DescribeModuleTest, Grp04GroupsOfParoQuantAndQqq) {
  tiny::Folder made = tiny::paroquant_folder();
  for (const int group : {96, 512, 3}) {
    made.config["quantization_config"]["group_size"] = group;
    expect_refused(made, ErrorCode::kUnsupported,
                   {fmt::format("{}.qweight", "q_proj"), fmt::format("groups of {}", group)});
  }
  // The wrong group with shapes of another.
  made.config["quantization_config"]["group_size"] = 128;
  expect_refused(made, ErrorCode::kCorruptData, {".qzeros", "[2, 32]"});
  // A wrong-layout control: AWQ's label on ParoQuant's tensors.
  made.config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}};
  expect_refused(made, ErrorCode::kCorruptData, {".theta", "awq-gemm"});
  for (const int group : {32, 64, 256}) {
    tiny::Folder qqq = tiny::packed_folder("qqq-g128", 4, 128);
    qqq.config["quantization_config"]["group_size"] = group;
    expect_refused(qqq, ErrorCode::kUnsupported, {"group_size", fmt::format("{}", group)});
  }
  EXPECT_TRUE(reopen(tiny::packed_folder("qqq-g128", 4, 128)));
  EXPECT_TRUE(reopen(tiny::packed_folder("qqq", 4, 256)));
}

}  // namespace
}  // namespace packstone
