// Packed modules of every folder layout bind from the names that stock programs give their tensors,
// with types and shapes checked against the config; contradictions are refused by tensor and key.
#include "packstone/checkpoint/bind_module.h"

#include <gtest/gtest.h>

#include "packstone/checkpoint/checkpoint.h"
#include "tests/support/reopened_folders.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone {
namespace {

constexpr std::string_view kUp = "model.layers.0.mlp.up_proj";

std::vector<std::byte> bytes_of(const std::vector<std::int64_t>& shape, std::string_view type,
                                std::mt19937& random) {
  std::int64_t count = safetensors_type(type)->block_bytes;
  for (const std::int64_t axis : shape) count *= axis;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 60);
  return bytes;
}

struct Part {
  std::string suffix, type;
  std::vector<std::int64_t> shape;
};

// A folder of one layer whose projections are packed: `parts` gives the tensors of a [rows, cols]
// matrix.
template <class Parts>
tiny::Folder packed_folder(const tiny::Json& config, Parts parts) {
  std::mt19937 random(5);
  tiny::Folder made = tiny::folder("llama", 1);
  std::vector<tiny::Tensor> dense = made.tensors;
  for (const tiny::Tensor& tensor : dense) {
    if (!tensor.name.ends_with("_proj.weight")) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
    made.erase(tensor.name);
    for (const Part& part : parts(tensor.shape[0], tensor.shape[1]))
      made.tensors.push_back(
          {module + part.suffix, part.type, part.shape, bytes_of(part.shape, part.type, random)});
  }
  made.config["quantization_config"] = config;
  return made;
}

TEST(BindModuleTest, Mxfp4UnderAllItsNames) {
  const tiny::Json ct = tiny::Json::parse(
      R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized","ignore":["lm_head"],
          "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float",
          "strategy":"group","group_size":32}}}})");
  const std::vector<tiny::Folder> folders = {
      packed_folder({{"quant_method", "mxfp4"}},
                    [](std::int64_t rows, std::int64_t cols) {
                      return std::vector<Part>{{"_blocks", "U8", {rows, cols / 32, 16}},
                                               {"_scales", "U8", {rows, cols / 32}}};
                    }),
      packed_folder(ct,
                    [](std::int64_t rows, std::int64_t cols) {
                      return std::vector<Part>{{".weight_packed", "U8", {rows, cols / 2}},
                                               {".weight_scale", "U8", {rows, cols / 32}}};
                    }),
      packed_folder({{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}},
                    [](std::int64_t rows, std::int64_t cols) {
                      return std::vector<Part>{{".weight", "U32", {rows, cols / 8}},
                                               {".scales", "U8", {rows, cols / 32}}};
                    })};
  std::vector<std::byte> first;
  for (const tiny::Folder& made : folders) {
    const Result<Checkpoint> checkpoint = reopen(made);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->unsupported.empty() && checkpoint->unbound.empty());
    const CheckpointTensor* up = checkpoint->find(fmt::format("{}.weight", kUp));
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->weight.format().table, "e2m1");
    EXPECT_EQ(up->shape, (std::vector<std::int64_t>{tiny::kIntermediate, tiny::kHidden}));
    const ByteSpan codes = up->weight.plane(0);
    if (first.empty()) first.assign(codes.begin(), codes.end());
    EXPECT_TRUE(std::ranges::equal(codes, first));
  }
  tiny::Folder broken = folders[0];
  broken.at(fmt::format("{}_blocks", kUp)).shape = {tiny::kIntermediate, 16, 2};
  expect_refused(broken, ErrorCode::kCorruptData,
                 {fmt::format("{}_blocks", kUp), "[128, 16, 2]", "mxfp4"});
  broken = folders[1];
  broken.erase(fmt::format("{}.weight_scale", kUp));
  expect_refused(broken, ErrorCode::kCorruptData, {fmt::format("{}", kUp), "no such tensor"});
}

// Words of equal codes: the zero points of a symmetric layer.
void fill(tiny::Tensor& tensor, std::uint32_t word) {
  for (std::size_t i = 0; i + 4 <= tensor.bytes.size(); i += 4)
    store_le(tensor.bytes.data() + i, word);
}

void set_groups(tiny::Tensor& index, std::int64_t group) {
  for (std::size_t col = 0; col * 4 < index.bytes.size(); ++col)
    store_le(index.bytes.data() + 4 * col,
             static_cast<std::int32_t>(static_cast<std::int64_t>(col) / group));
}

tiny::Folder gptq_folder(int bits, std::int64_t group, std::uint32_t zeros,
                         const std::string& format = "gptq") {
  tiny::Folder made =
      packed_folder({{"quant_method", "gptq"},
                     {"bits", bits},
                     {"group_size", group},
                     {"sym", true},
                     {"desc_act", false},
                     {"checkpoint_format", format}},
                    [&](std::int64_t rows, std::int64_t cols) {
                      const std::int64_t groups = group < 0 ? 1 : (cols + group - 1) / group;
                      return std::vector<Part>{{".qweight", "I32", {cols * bits / 32, rows}},
                                               {".qzeros", "I32", {groups, rows * bits / 32}},
                                               {".scales", "F16", {groups, rows}},
                                               {".g_idx", "I32", {cols}}};
                    });
  for (tiny::Tensor& tensor : made.tensors) {
    if (tensor.name.ends_with(".qzeros")) fill(tensor, zeros);
    if (tensor.name.ends_with(".g_idx")) set_groups(tensor, group < 0 ? 1 << 20 : group);
  }
  return made;
}

const CheckpointTensor* up_of(const Result<Checkpoint>& checkpoint) {
  return checkpoint ? checkpoint->find(fmt::format("{}.weight", kUp)) : nullptr;
}

TEST(BindModuleTest, GptqConventions) {
  for (const auto& [format, zeros] : {std::pair("gptq", 0x77777777u), {"gptq_v2", 0x88888888u}}) {
    const Result<Checkpoint> checkpoint = reopen(gptq_folder(4, 32, zeros, format));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->problems.empty() && checkpoint->unbound.empty());
    const CheckpointTensor* up = up_of(checkpoint);
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->weight.format().layout, format);
    EXPECT_EQ(up->weight.params().group_cols, 32);
    EXPECT_FALSE(up->weight.params().act_order);
  }
  // Marlin: both patterns of the middle, nothing else.
  for (const auto& [zeros, layout] : {std::pair(0x77777777u, "gptq"), {0x88888888u, "gptq_v2"}}) {
    const Result<Checkpoint> checkpoint = reopen(gptq_folder(4, 32, zeros, "marlin"));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(up_of(checkpoint)->weight.format().layout, layout);
  }
  expect_refused(gptq_folder(4, 32, 0x12345678u, "marlin"), ErrorCode::kCorruptData,
                 {".qzeros", "quantization_config"});
  // Files without g_idx have groups in order.
  tiny::Folder made = gptq_folder(4, 32, 0x77777777u);
  std::erase_if(made.tensors,
                [](const tiny::Tensor& tensor) { return tensor.name.ends_with(".g_idx"); });
  const Result<Checkpoint> plain = reopen(made);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(load_le<std::int32_t>(up_of(plain)->weight.plane(3).data() + 4 * 63), 1);
}

// ZP-03: zeros that contradict a symmetric config, of another dtype or transposed, are refused.
TEST(BindModuleTest, Zp03ZeroPointsAgainstTheConfig) {
  tiny::Folder made = gptq_folder(4, 32, 0x77777777u);
  made.at(fmt::format("{}.qzeros", kUp)).bytes[3] = std::byte{0x12};
  expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}.qzeros", kUp), "'sym' true"});
  made.config["quantization_config"]["sym"] = false;
  EXPECT_TRUE(reopen(made));
  // The other convention's middle is one step off.
  expect_refused(gptq_folder(4, 32, 0x88888888u), ErrorCode::kCorruptData, {".qzeros"});
  made = gptq_folder(4, 32, 0x77777777u);
  tiny::Tensor& zeros = made.at(fmt::format("{}.qzeros", kUp));
  zeros = {zeros.name, "F16", {2, tiny::kIntermediate}, std::vector<std::byte>(512)};
  expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}.qzeros", kUp), "F16", "I32"});
  made = gptq_folder(4, 32, 0x77777777u);
  std::swap(made.at(fmt::format("{}.qzeros", kUp)).shape[0],
            made.at(fmt::format("{}.qzeros", kUp)).shape[1]);
  expect_refused(made, ErrorCode::kCorruptData,
                 {fmt::format("{}.qzeros", kUp), "[16, 2]", "[2, 16]"});
}

// CFG-03's kind for GPTQ: the config says one width, the shapes another.
TEST(BindModuleTest, BitsOfTheConfigAgainstShapes) {
  tiny::Folder made = gptq_folder(8, 32, 0x7F7F7F7Fu);
  made.config["quantization_config"]["bits"] = 4;
  expect_refused(made, ErrorCode::kCorruptData,
                 {".qweight", "8 bits", "4 bits", "quantization_config"});
  made = gptq_folder(4, 32, 0x77777777u);
  made.config["quantization_config"]["group_size"] = 64;
  expect_refused(made, ErrorCode::kCorruptData, {"q_proj", "groups of 64"});
  // One module of another width needs a rule.
  made = gptq_folder(4, 32, 0x77777777u);
  const tiny::Folder wide = gptq_folder(8, 32, 0x7F7F7F7Fu);
  for (const char* part : {".qweight", ".qzeros"}) {
    tiny::Folder source = wide;
    made.at(fmt::format("{}{}", kUp, part)) = source.at(fmt::format("{}{}", kUp, part));
  }
  expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}.qweight", kUp), "8 bits"});
  made.config["quantization_config"]["dynamic"] = {{"+:.*up_proj", {{"bits", 8}}}};
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(up_of(checkpoint)->weight.format().code_bits, 8);
}

// GRP-02: -1, null and the row's length are the same weight. GRP-01: what does not divide is
// refused by tensor.
TEST(BindModuleTest, Grp02Grp01Groups) {
  for (const tiny::Json& group : {tiny::Json(-1), tiny::Json(nullptr), tiny::Json(128)}) {
    tiny::Folder made = gptq_folder(4, -1, 0x77777777u);
    made.config["quantization_config"]["group_size"] = group;
    const Result<Checkpoint> checkpoint = reopen(made);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(up_of(checkpoint)->weight.params().group_cols, tiny::kHidden);
  }
  tiny::Folder made = gptq_folder(4, -1, 0x77777777u);
  made.config["quantization_config"]["group_size"] = 0;
  expect_refused(made, ErrorCode::kCorruptData, {"group_size", "got 0"});
  made.config["quantization_config"]["group_size"] = 48;
  expect_refused(made, ErrorCode::kUnsupported, {"q_proj", "48"});
}

// Group numbers: act order where the config states it; out of range, negative or unstated ones are
// refused (ACT-01's kind at the door).
TEST(BindModuleTest, ActGroupNumbers) {
  tiny::Folder made = gptq_folder(4, 32, 0x77777777u);
  tiny::Tensor& index = made.at(fmt::format("{}.g_idx", kUp));
  for (std::size_t col = 0; col < 64; ++col)
    store_le(index.bytes.data() + 4 * col, static_cast<std::int32_t>(col % 2));
  expect_refused(made, ErrorCode::kCorruptData,
                 {fmt::format("{}.g_idx", kUp), "group 1 of column 1", "'desc_act' false"});
  made.config["quantization_config"]["desc_act"] = true;
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(up_of(checkpoint)->weight.params().act_order);
  EXPECT_FALSE(checkpoint->find("model.layers.0.mlp.gate_proj.weight")->weight.params().act_order);
  for (const std::int32_t wrong : {2, -1, 1 << 30}) {
    store_le(made.at(fmt::format("{}.g_idx", kUp)).bytes.data(), wrong);
    expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}", kUp)});
  }
}

// CFG-05: K = N makes the packed shapes of GEMM and GEMV equal; the label decides, and the shape of
// the scales must agree with it.
TEST(BindModuleTest, Cfg05AwqLabelAndScales) {
  const auto gemm = [](std::int64_t rows, std::int64_t cols) {
    return std::vector<Part>{{".qweight", "I32", {cols, rows / 8}},
                             {".qzeros", "I32", {cols / 64, rows / 8}},
                             {".scales", "F16", {cols / 64, rows}}};
  };
  tiny::Json config = {{"quant_method", "awq"},
                       {"bits", 4},
                       {"group_size", 64},
                       {"zero_point", true},
                       {"version", "gemm"}};
  const tiny::Folder made = packed_folder(config, gemm);
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(up_of(checkpoint)->weight.format().layout, "awq-gemm");
  tiny::Folder swapped = made;
  swapped.config["quantization_config"]["version"] = "gemv";
  expect_refused(swapped, ErrorCode::kCorruptData, {"self_attn.q_proj", "awq-gemv"});
  swapped.config["quantization_config"].erase("version");
  EXPECT_TRUE(reopen(swapped));  // the documented default is gemm
  swapped.config["quantization_config"]["version"] = "gemm2";
  expect_refused(swapped, ErrorCode::kUnsupported, {"gemm2"});
  // bfloat16 scales are met in AWQ files.
  tiny::Folder bfloat = made;
  for (tiny::Tensor& tensor : bfloat.tensors)
    if (tensor.name.ends_with(".scales")) tensor.type = "BF16";
  const Result<Checkpoint> wide = reopen(bfloat);
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_EQ(up_of(wide)->weight.params().metadata, FloatType::kBF16);
}

// CFG-02: the tensors must agree with the skip list.
TEST(BindModuleTest, Cfg02SkipListAgainstTensors) {
  tiny::Folder made = gptq_folder(4, 32, 0x77777777u);
  made.config["quantization_config"]["dynamic"] = {{"-:.*up_proj", tiny::Json::object()}};
  expect_refused(made, ErrorCode::kCorruptData,
                 {fmt::format("{}.qweight", kUp), "floats", "-:.*up_proj"});
  std::mt19937 random(3);
  for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"})
    made.erase(fmt::format("{}{}", kUp, part));
  made.tensors.push_back(tiny::random_tensor(fmt::format("{}.weight", kUp),
                                             {tiny::kIntermediate, tiny::kHidden}, random));
  EXPECT_TRUE(reopen(made));
  made.config["quantization_config"].erase("dynamic");
  expect_refused(made, ErrorCode::kCorruptData, {fmt::format("{}.weight", kUp), "packed"});
}

// TIE-04: a head that is packed alone, and a flag that says otherwise.
TEST(BindModuleTest, Tie04PackedHead) {
  tiny::Folder made = gptq_folder(4, 32, 0x77777777u);
  const auto add = [&](const char* suffix, const char* type, std::vector<std::int64_t> shape) {
    std::int64_t count = safetensors_type(type)->block_bytes;
    for (const std::int64_t axis : shape) count *= axis;
    made.tensors.push_back({fmt::format("lm_head{}", suffix), type, std::move(shape),
                            std::vector<std::byte>(static_cast<std::size_t>(count))});
  };
  add(".qweight", "I32", {tiny::kHidden / 4, tiny::kVocab});
  add(".qzeros", "I32", {2, tiny::kVocab / 4});
  add(".scales", "F16", {2, tiny::kVocab});
  fill(made.at("lm_head.qzeros"), 0x7F7F7F7Fu);
  made.config["tie_word_embeddings"] = false;
  made.config["quantization_config"]["lm_head"] = true;
  made.config["quantization_config"]["dynamic"] = {{"lm_head", {{"bits", 8}}}};
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->find("lm_head.weight")->weight.format().code_bits, 8);
  EXPECT_FALSE(checkpoint->config.tied_embeddings);
  made.config["quantization_config"]["lm_head"] = false;
  made.config["quantization_config"].erase("dynamic");
  for (tiny::Tensor& tensor : made.tensors)
    if (tensor.name == "lm_head.qweight") tensor.shape = {tiny::kHidden / 4, tiny::kVocab};
  expect_refused(made, ErrorCode::kCorruptData, {"lm_head.qweight", "quantization_config"});
}

// SHD-03's kind: the parts of one module may lie in different shards.
TEST(BindModuleTest, ShdPartsInDifferentShards) {
  const tiny::Folder made = gptq_folder(4, 32, 0x77777777u);
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "model", made));
  std::filesystem::remove(folder / "model/model.safetensors");
  tiny::Json map;
  for (std::size_t shard = 0; shard < 2; ++shard) {
    const std::string name = fmt::format("model-0000{}-of-00002.safetensors", shard + 1);
    std::vector<TensorSpec> specs;
    std::vector<const tiny::Tensor*> tensors;
    for (std::size_t i = shard; i < made.tensors.size(); i += 2) {
      const tiny::Tensor& tensor = made.tensors[i];
      specs.push_back(
          {tensor.name, safetensors_type(tensor.type), tensor.shape, tensor.bytes.size()});
      tensors.push_back(&tensor);
      map["weight_map"][tensor.name] = name;
    }
    auto writer = SafetensorsWriter::create(folder / ("model/" + name), specs, {});
    ASSERT_TRUE(writer);
    for (const tiny::Tensor* tensor : tensors) ASSERT_TRUE(writer->write(tensor->bytes));
    ASSERT_TRUE(writer->commit());
  }
  tiny::write_text(folder / "model/model.safetensors.index.json", map.dump());
  const Result<Checkpoint> checkpoint = open_checkpoint(folder / "model");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(up_of(checkpoint)->weight.format().layout, "gptq");
}

}  // namespace
}  // namespace packstone
