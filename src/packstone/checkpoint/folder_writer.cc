#include "packstone/base/limits.h"
#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/writers.h"
#include "packstone/container/folder_files.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.write_folder";

// Tokenizer files beside tokenizer.json and tokenizer_config.json that stock loaders read.
constexpr std::string_view kFurtherFiles[] = {"special_tokens_map.json",
                                              "added_tokens.json",
                                              "tokenizer.model",
                                              "vocab.json",
                                              "merges.txt",
                                              "vocab.txt",
                                              "chat_template.jinja",
                                              "chat_template.json"};

// The safetensors type of a dense format, or nothing.
const StorageType* dense_type(FormatId format) {
  if (format == kFormatId<DenseF32>) return safetensors_type("F32");
  if (format == kFormatId<DenseF16>) return safetensors_type("F16");
  if (format == kFormatId<DenseBF16>) return safetensors_type("BF16");
  return nullptr;
}

bool is_mlx(FormatId format) {
  return format_info(format).layout == MlxAffine<4>::kLayout;
}

const StorageType* metadata_type(FloatType type) {
  constexpr std::string_view kNames[] = {"F32", "F16", "BF16"};
  return safetensors_type(kNames[static_cast<std::size_t>(type)]);
}

// The stored tensors of one weight, in plane order.
std::vector<TensorSpec> specs_of(const PlannedTensor& tensor) {
  const OutputTensor& output = tensor.output;
  const auto bytes = [&](int plane) {
    return plane_bytes(output.format, plane, tensor.bound, output.params);
  };
  if (const StorageType* type = dense_type(output.format))
    return {{output.name, type, output.shape, bytes(0)}};
  const std::string module = output.name.substr(0, output.name.rfind('.'));
  const std::int64_t rows = tensor.bound.rows;
  const std::int64_t cols = tensor.bound.cols;
  const std::vector<std::int64_t> groups = {rows, cols / output.params.group_cols};
  const StorageType* floats = metadata_type(output.params.metadata);
  const std::int64_t words = cols * format_info(output.format).code_bits / 32;
  return {{module + ".weight", safetensors_type("U32"), {rows, words}, bytes(0)},
          {module + ".scales", floats, groups, bytes(1)},
          {module + ".biases", floats, groups, bytes(2)}};
}

std::string shard_name(std::size_t shard, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

class FolderWriter final : public CheckpointWriter {
 public:
  FolderWriter(OutputFolder folder, std::vector<PlannedTensor> tensors,
               std::map<std::string, std::string> metadata)
      : folder_(std::move(folder)),
        tensors_(std::move(tensors)),
        safetensors_metadata_(std::move(metadata)) {}

  // Lays the tensors out in shards and writes all files but those.
  Status start(const Checkpoint& source, std::uint64_t shard_bytes_max) {
    for (const PlannedTensor& tensor : tensors_) {
      parameters_ += static_cast<std::uint64_t>(tensor.bound.rows * tensor.bound.cols);
      for (TensorSpec& spec : specs_of(tensor)) specs_.push_back(std::move(spec));
    }
    shards_ = plan_shards(specs_, shard_bytes_max);
    PACKSTONE_CHECK_OK(write_configs(source));
    return write_tokenizer(source);
  }

  std::vector<std::int32_t> stored_order(std::size_t) const override { return {}; }
  ValueRule value_rule(std::size_t) const override { return ValueRule::kSame; }

  Status write(std::size_t i, const std::vector<ByteSpan>& planes) override {
    if (i != next_ || i >= tensors_.size())
      return fail(ErrorCode::kInvalidInput, kWhere, "tensor", std::to_string(i),
                  std::to_string(next_));
    PACKSTONE_CHECK_OK(check_planes(tensors_[i], planes, kWhere));
    for (const ByteSpan plane : planes) PACKSTONE_CHECK_OK(write_plane(plane));
    ++next_;
    return {};
  }

  Status commit() override {
    if (next_ != tensors_.size())
      return fail(ErrorCode::kInvalidInput, kWhere, folder_.path().string(),
                  fmt::format("{} tensors", next_), std::to_string(tensors_.size()));
    if (shard_) PACKSTONE_CHECK_OK(shard_->commit());
    std::vector<std::string> file_of;
    for (std::size_t shard = 0; shard < shards_.size(); ++shard)
      file_of.insert(file_of.end(), shards_[shard], shard_name(shard, shards_.size()));
    PACKSTONE_CHECK_OK(folder_.write_text("model.safetensors.index.json",
                                          safetensors_index_text(specs_, file_of, parameters_)));
    return folder_.commit();
  }

 private:
  Status write_plane(ByteSpan plane) {
    if (left_in_shard_ == 0) {
      if (shard_) PACKSTONE_CHECK_OK(shard_->commit());
      left_in_shard_ = shards_[opened_];
      const auto first = specs_.begin() + static_cast<std::ptrdiff_t>(next_spec_);
      std::vector<TensorSpec> specs(first, first + static_cast<std::ptrdiff_t>(left_in_shard_));
      PACKSTONE_TRY(SafetensorsWriter shard,
                    SafetensorsWriter::create(folder_.path() / shard_name(opened_, shards_.size()),
                                              std::move(specs), safetensors_metadata_));
      shard_.emplace(std::move(shard));
      ++opened_;
    }
    PACKSTONE_CHECK_OK(shard_->write(plane));
    --left_in_shard_;
    ++next_spec_;
    return {};
  }

  Status write_json(std::string_view name, const Json& json) {
    return folder_.write_text(name,
                              json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  Status write_configs(const Checkpoint& source) {
    std::vector<OutputTensor> outputs;
    OutputFacts facts{.head = false, .tensors = &outputs};
    for (const PlannedTensor& tensor : tensors_) {
      outputs.push_back(tensor.output);
      facts.head = facts.head || tensor.expected.need == Need::kHead;
    }
    PACKSTONE_TRY(const Json config, folder_config(source, facts, metadata_));
    PACKSTONE_CHECK_OK(write_json("config.json", config));
    const Json generation = folder_generation_config(source);
    if (generation.is_null()) return {};
    return write_json("generation_config.json", generation);
  }

  Status write_tokenizer(const Checkpoint& source) {
    if (source.container == ContainerKind::kFolder) return copy_tokenizer(source);
    PACKSTONE_TRY(const auto model, source.gguf.text("tokenizer.ggml.model"));
    if (!model || *model == "none" || *model == "no_vocab") {
      metadata_.not_carried.emplace_back("tokenizer (the source has none)");
      return {};
    }
    PACKSTONE_TRY(const Vocabulary vocabulary, checkpoint_vocabulary(source));
    PACKSTONE_TRY(const Json tokenizer, tokenizer_json(vocabulary));
    PACKSTONE_CHECK_OK(write_json("tokenizer.json", tokenizer));
    return write_json("tokenizer_config.json", tokenizer_config_json(vocabulary));
  }

  Status copy_tokenizer(const Checkpoint& source) {
    if (!source.tokenizer_json_text.empty())
      PACKSTONE_CHECK_OK(folder_.write_text("tokenizer.json", source.tokenizer_json_text));
    if (!source.tokenizer_config_text.empty())
      PACKSTONE_CHECK_OK(folder_.write_text("tokenizer_config.json", source.tokenizer_config_text));
    for (const std::string_view name : kFurtherFiles) {
      Result<std::string> text =
          internal::read_folder_text(kWhere, source.path, name, limits::kJsonBytesMax);
      if (!text && text.error().code == ErrorCode::kNotFound) continue;
      if (!text) return std::unexpected(std::move(text).error());
      PACKSTONE_CHECK_OK(folder_.write_text(name, *text));
    }
    return {};
  }

  OutputFolder folder_;
  std::vector<PlannedTensor> tensors_;
  std::map<std::string, std::string> safetensors_metadata_;
  std::vector<TensorSpec> specs_;    // all shards, in order
  std::vector<std::size_t> shards_;  // specs in each
  std::optional<SafetensorsWriter> shard_;
  std::size_t next_ = 0;  // tensor
  std::size_t next_spec_ = 0;
  std::size_t opened_ = 0;  // shards
  std::size_t left_in_shard_ = 0;
  std::uint64_t parameters_ = 0;
};

}  // namespace

Result<std::unique_ptr<CheckpointWriter>> create_folder_writer(const std::filesystem::path& target,
                                                               const Checkpoint& source,
                                                               std::vector<PlannedTensor> tensors,
                                                               const WriteOptions& options) {
  std::vector<std::string> homeless;
  bool packed = false;
  for (const PlannedTensor& tensor : tensors) {
    const bool matrix = tensor.output.shape.size() == 2;
    packed = packed || is_mlx(tensor.output.format);
    if (dense_type(tensor.output.format) == nullptr && !(matrix && is_mlx(tensor.output.format)))
      homeless.push_back(tensor.output.name);
  }
  if (!homeless.empty())
    return fail(ErrorCode::kUnsupported, kWhere, name_list(homeless),
                "formats that safetensors folders have no names for",
                "float32, float16, bfloat16 or mlx-affine");
  std::map<std::string, std::string> metadata = source.safetensors_metadata;
  metadata["format"] = packed ? "mlx" : "pt";
  PACKSTONE_TRY(OutputFolder folder, OutputFolder::create(target, options.force));
  auto writer =
      std::make_unique<FolderWriter>(std::move(folder), std::move(tensors), std::move(metadata));
  PACKSTONE_CHECK_OK(writer->start(source, options.shard_bytes_max));
  return std::unique_ptr<CheckpointWriter>(std::move(writer));
}

}  // namespace packstone
