// Packed modules of every folder layout bind from the names that stock programs give their tensors,
// with types and shapes checked against the config; contradictions are refused by tensor and key.
#include "packstone/checkpoint/bind_module.h"

#include <gtest/gtest.h>

#include "packstone/checkpoint/checkpoint.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone {
namespace {

constexpr std::string_view kUp = "model.layers.0.mlp.up_proj";

Result<Checkpoint> reopen(const tiny::Folder& made) {
  const tiny::TemporaryFolder folder;
  const Status written = tiny::write(folder / "model", made);
  EXPECT_TRUE(written) << written.error().message;
  return open_checkpoint(folder / "model");
}

void expect_refused(const tiny::Folder& made, ErrorCode code,
                    const std::vector<std::string>& parts) {
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_FALSE(checkpoint) << "opened; expected an error about " << parts[0];
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(checkpoint.error().message.find(part), std::string::npos)
        << checkpoint.error().message << " does not mention " << part;
}

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

}  // namespace
}  // namespace packstone
