// Every format with a place in folders is written with its consumers' names and config, and reads
// back as the same format, parameters and bytes.
#include <gtest/gtest.h>

#include <numeric>

#include "packstone/checkpoint/folder_parts.h"
#include "packstone/checkpoint/quantization_spec.h"
#include "packstone/checkpoint/quantization_writer.h"
#include "packstone/checkpoint/writer.h"
#include "tests/support/packed_folders.h"

namespace packstone {
namespace {

// Parameters that may describe a weight of this shape, several kinds of sharing among them.
std::vector<FormatParams> choices(FormatId id, Shape shape) {
  std::vector<FormatParams> list = {{}};
  for (std::int32_t group : format_info(id).group_sizes) {
    if (group == kWholeRow) group = static_cast<std::int32_t>(shape.cols);
    if (group != 16 && group != 32 && group != shape.cols) continue;
    for (const std::int32_t rows : {1, 32, static_cast<std::int32_t>(shape.rows)}) {
      const bool blocks = format_info(id).shares_rows && format_info(id).group_sizes.size() > 1;
      if (rows != 1 && !blocks) continue;
      FormatParams params;
      params.group_cols = group;
      params.group_rows = rows;
      list.push_back(params);
    }
  }
  std::erase_if(list, [&](const FormatParams& params) {
    const std::string_view layout = format_info(id).layout;
    if (layout_rule(id, shape, params) != nullptr || !folder_family(id, shape, params)) return true;
    // Blocks of bitsandbytes go over whole rows; those of FP8 have one size in a folder.
    const std::int64_t block = std::int64_t{params.group_cols} * params.group_rows;
    if (layout.starts_with("bnb-nf4") || layout.starts_with("bnb-fp4"))
      return std::gcd(shape.cols, block) != params.group_cols;
    return params.group_cols < shape.cols && params.group_rows == shape.rows;
  });
  return list;
}

// Any bytes that a plane may have: group numbers count, scales are small positive numbers.
std::vector<std::byte> plane_of(FormatId id, int plane, Shape shape, const FormatParams& params) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(plane_bytes(id, plane, shape, params));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 60);
  if (plane == format_info(id).index_plane)
    for (std::int64_t col = 0; col < shape.cols; ++col)
      store_le(bytes.data() + 4 * col, static_cast<std::int32_t>(col / params.group_cols));
  return bytes;
}

class Output {
 public:
  explicit Output(const Checkpoint& source) {
    for (const CheckpointTensor& tensor : source.tensors) {
      outputs_.push_back({tensor.name, tensor.shape, tensor.weight.id(), tensor.weight.params()});
      const ByteSpan bytes = tensor.weight.plane(0);
      planes_.push_back({{bytes.begin(), bytes.end()}});
    }
  }

  // Packs the tensor where the format can hold it. Whole rows stay whole rows.
  void pack(std::size_t i, FormatId id, const FormatParams& asked, Shape asked_shape) {
    OutputTensor& output = outputs_[i];
    const Shape shape{output.shape[0], output.shape[1]};
    FormatParams params = asked;
    if (asked.group_cols == asked_shape.cols)
      params.group_cols = static_cast<std::int32_t>(shape.cols);
    if (asked.group_rows == asked_shape.rows)
      params.group_rows = static_cast<std::int32_t>(shape.rows);
    if (layout_rule(id, shape, params) != nullptr ||
        folder_family(id, shape, params) != folder_family(id, asked_shape, asked))
      return;
    output.format = id;
    output.params = params;
    planes_[i].clear();
    for (int plane = 0; plane < format_info(id).plane_count; ++plane)
      planes_[i].push_back(plane_of(id, plane, shape, params));
    ++packed_;
  }

  Status write(const std::filesystem::path& path, const Checkpoint& source) const {
    PACKSTONE_TRY(auto writer,
                  CheckpointWriter::create(path, ContainerKind::kFolder, source, outputs_, {}));
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      std::vector<ByteSpan> planes;
      for (const auto& plane : planes_[i]) planes.emplace_back(plane);
      PACKSTONE_CHECK_OK(writer->write(i, planes));
    }
    return writer->commit();
  }

  void expect_same(const Checkpoint& read) const {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const CheckpointTensor* tensor = read.find(outputs_[i].name);
      ASSERT_NE(tensor, nullptr) << outputs_[i].name;
      EXPECT_EQ(tensor->weight.format().name, format_info(outputs_[i].format).name);
      const FormatParams& params = tensor->weight.params();
      const FormatParams& wanted = outputs_[i].params;
      const FormatId id = outputs_[i].format;
      EXPECT_EQ(group_cols(id, params), group_cols(id, wanted)) << outputs_[i].name;
      EXPECT_EQ(params.group_rows, wanted.group_rows) << outputs_[i].name;
      EXPECT_EQ(params.metadata, wanted.metadata) << outputs_[i].name;
      EXPECT_EQ(params.constant, wanted.constant) << outputs_[i].name;
      EXPECT_FALSE(params.act_order);
      for (int plane = 0; plane < tensor->weight.plane_count(); ++plane)
        EXPECT_TRUE(std::ranges::equal(tensor->weight.plane(plane),
                                       planes_[i][static_cast<std::size_t>(plane)]));
    }
  }

  const std::vector<OutputTensor>& outputs() const { return outputs_; }
  std::size_t packed() const { return packed_; }

 private:
  std::vector<OutputTensor> outputs_;
  std::vector<std::vector<std::vector<std::byte>>> planes_;
  std::size_t packed_ = 0;
};

TEST(FolderFormatsTest, EveryFormatWritesAndReadsBack) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "source", tiny::folder("llama", 1)));
  const Result<Checkpoint> source = open_checkpoint(folder / "source");
  ASSERT_TRUE(source) << source.error().message;
  const Shape shape{tiny::kIntermediate, tiny::kHidden};
  int written = 0;
  for (std::uint16_t format = 0; format < format_count(); ++format) {
    const FormatId id{format};
    for (const FormatParams& params : choices(id, shape)) {
      const std::string what =
          fmt::format("{} {}x{}", format_info(id).name, params.group_rows, params.group_cols);
      SCOPED_TRACE(what);
      Output output(*source);
      for (std::size_t i = 0; i < source->tensors.size(); ++i)
        if (source->tensors[i].name.ends_with("_proj.weight")) output.pack(i, id, params, shape);
      ASSERT_GT(output.packed(), 0u);
      const Status status = output.write(folder / fmt::format("w{}", written), *source);
      ASSERT_TRUE(status) << status.error().message;
      const Result<Checkpoint> read = open_checkpoint(folder / fmt::format("w{}", written));
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_TRUE(read->unsupported.empty() && read->unbound.empty());
      output.expect_same(*read);
      ++written;
    }
  }
  EXPECT_GE(written, 18);
}

// GPTQModel refuses asymmetric "gptq" of files that do not name it, and reads gptq_v2 of all.
TEST(FolderFormatsTest, AsymmetricGptqNamesTheProgramWhoseZeroPointsItHas) {
  const auto quantizers = [](std::string_view name, bool symmetric) {
    const auto id = find_format(name);
    EXPECT_TRUE(id);
    FormatParams params;
    params.group_cols = 32;
    const std::vector<OutputTensor> tensors = {
        {"model.layers.0.mlp.up_proj.weight", {64, 64}, *id, params}};
    return quantization_keys(tensors, symmetric)["quantization_config"]["meta"]["quantizer"].dump();
  };
  EXPECT_EQ(quantizers("gptq.w4", true), R"(["packstone"])");
  EXPECT_EQ(quantizers("gptq.w4", false), R"(["packstone","gptqmodel:0.9.0"])");
  EXPECT_EQ(quantizers("gptq_v2.w4", false), R"(["packstone"])");
}

// The tiles of Marlin that vLLM reads from a file, with both marks of its config; all other tiles,
// and rows of ggml, are refused before anything is written, each with what a folder can hold.
TEST(FolderFormatsTest, MarlinTilesWriteAndReadBack) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "source", tiny::wide_folder()));
  const Result<Checkpoint> source = open_checkpoint(folder / "source");
  ASSERT_TRUE(source) << source.error().message;
  const Shape shape{tiny::kWide, tiny::kWide};
  const auto packed = [&](std::string_view layout, int bits, std::int32_t group) {
    Output output(*source);
    FormatParams params;
    params.group_cols = group;
    for (std::size_t i = 0; i < source->tensors.size(); ++i)
      if (source->tensors[i].name.ends_with("_proj.weight"))
        output.pack(i, *find_layout(layout, bits), params, shape);
    return output;
  };
  for (const std::int32_t group : {128, 256}) {
    const Output output = packed("marlin", 4, group);
    ASSERT_EQ(output.packed(), 7u);
    const std::filesystem::path path = folder / fmt::format("marlin{}", group);
    const Status status = output.write(path, *source);
    ASSERT_TRUE(status) << status.error().message;
    const Result<Checkpoint> read = open_checkpoint(path);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->unsupported.empty() && read->unbound.empty() && read->problems.empty());
    output.expect_same(*read);
    const tiny::Json& block = read->config_json["quantization_config"];
    EXPECT_EQ(block["is_marlin_format"], true);
    EXPECT_EQ(block["checkpoint_format"], "marlin");
    EXPECT_EQ(block["group_size"], group == 256 ? -1 : group);
    EXPECT_EQ(read->find("model.layers.0.mlp.up_proj.weight")->parts[0].suffix, ".B");
    ASSERT_EQ(read->quantization_files.size(), 1u);
    EXPECT_EQ(read->quantization_files[0].json, block);
  }
  struct Refused {
    std::string_view layout;
    int bits;
    std::int32_t group;
    std::string_view why;
  };
  for (const Refused& one : {Refused{"marlin", 8, 128, "4 bits"},
                             {"marlin", 4, 64, "groups of 128"},
                             {"marlin-awq", 4, 128, "awq-gemm"},
                             {"gguf:Q4_0", 0, 0, "GGUF file"}}) {
    const Output output = packed(one.layout, one.bits, one.group);
    ASSERT_EQ(output.packed(), 7u) << one.layout;
    const Result<MetadataReport> report =
        CheckpointWriter::report(ContainerKind::kFolder, *source, output.outputs(), {});
    const Status written = output.write(folder / "none", *source);
    ASSERT_FALSE(report || written);
    for (const std::string& message : {report.error().message, written.error().message})
      for (const std::string_view part : {one.layout, one.why, std::string_view("up_proj")})
        EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(folder / "none"));
  }
}

}  // namespace
}  // namespace packstone
