#include <algorithm>

#include "packstone/base/limits.h"
#include "packstone/checkpoint/certificate.h"
#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/folder_parts.h"
#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/not_carried.h"
#include "packstone/checkpoint/quantization_writer.h"
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
  if (format == kFloat32) return safetensors_type("F32");
  if (format == kFloat16) return safetensors_type("F16");
  if (format == kBFloat16) return safetensors_type("BF16");
  return nullptr;
}

std::string module_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

// The tensors of one weight; of a copy those of the source, companions included.
std::vector<FolderPart> parts_of(const PlannedTensor& tensor, const CheckpointTensor* copied) {
  const OutputTensor& output = tensor.output;
  if (const StorageType* type = dense_type(output.format))
    return {
        {"." + output.name.substr(module_of(output.name).size() + 1), type, output.shape, 0, {}}};
  if (copied == nullptr) return folder_parts(output.format, tensor.bound, output.params);
  std::vector<FolderPart> parts;
  for (const StoredPart& part : copied->parts) {
    FolderPart made{part.suffix, part.view.type, part.view.shape, part.plane, {}};
    if (part.plane < 0) made.bytes.assign(part.view.bytes.begin(), part.view.bytes.end());
    parts.push_back(std::move(made));
  }
  return parts;
}

using PartLists = std::vector<std::vector<FolderPart>>;  // by tensor

PartLists parts_of_all(const Checkpoint& source, const std::vector<PlannedTensor>& tensors,
                       bool copy) {
  PartLists parts;
  for (const PlannedTensor& tensor : tensors)
    parts.push_back(parts_of(tensor, copy ? source.find(tensor.output.name) : nullptr));
  return parts;
}

// Everything of the source that has no place beside `config`.
Status list_rest(const Checkpoint& source, const std::vector<PlannedTensor>& tensors,
                 const PartLists& parts, bool copy, const Json& config, MetadataReport& report) {
  WrittenCompanions written;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (const FolderPart& part : parts[i])
      if (part.plane < 0)
        written.emplace(module_of(tensors[i].output.name) + part.suffix, part.bytes);
  list_stored_rest(source, outputs_of(tensors), written, report);
  const auto block = config.find("quantization_config");
  if (!copy) list_quantization_rest(source, block == config.end() ? Json() : *block, report);
  return list_files_rest(source, ContainerKind::kFolder, report);
}

// Whether every packed tensor of the output is the source's, in the same format: then the source's
// names, companions and quantization blocks describe it.
bool is_copy(const Checkpoint& source, const std::vector<PlannedTensor>& tensors, bool carries) {
  if (source.container != ContainerKind::kFolder) return false;
  if (&text_config_of(source.config_json) != &source.config_json) return false;
  std::size_t packed = 0;
  for (const PlannedTensor& tensor : tensors) {
    const CheckpointTensor* from = source.find(tensor.output.name);
    const bool dense = dense_type(tensor.output.format) != nullptr;
    if (from == nullptr) return false;
    if ((dense_type(from->weight.id()) != nullptr) != dense) return false;
    if (dense) continue;
    ++packed;
    if (from->weight.id() != tensor.output.format ||
        from->weight.params() != tensor.output.params || from->parts.empty())
      return false;
  }
  return (packed != 0 || carries) && tensors.size() == source.tensors.size();
}

// Modules without a format go along only in a copy, and only with all their tensors.
Status check_described(const Checkpoint& source, bool copy) {
  for (const UnsupportedTensor& module : source.unsupported)
    if (!copy || module.parts.empty())
      return fail(ErrorCode::kUnsupported, kWhere, fmt::format("'{}'", module.stored_name),
                  fmt::format("layout {}", module.type),
                  "a copy of all packed tensors, or a layout with a format");
  return {};
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

  // Lays the tensors out in shards and writes all files but those and config.json.
  Status start(const Checkpoint& source, const WriteOptions& options) {
    const bool carries = options.carry_described && !source.unsupported.empty();
    copy_ = is_copy(source, tensors_, carries);
    if (carries) PACKSTONE_CHECK_OK(take_described(source));
    parts_ = parts_of_all(source, tensors_, copy_);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const PlannedTensor& tensor = tensors_[i];
      parameters_ += static_cast<std::uint64_t>(tensor.bound.rows * tensor.bound.cols);
      const std::string module = module_of(tensor.output.name);
      for (const FolderPart& part : parts_[i])
        specs_.push_back({module + part.suffix, part.type, part.shape,
                          part.plane < 0 ? part.bytes.size()
                                         : plane_bytes(tensor.output.format, part.plane,
                                                       tensor.bound, tensor.output.params)});
    }
    for (const TensorView& view : carried_)
      specs_.push_back({view.name, view.type, view.shape, view.bytes.size()});
    shards_ = plan_shards(specs_, options.shard_bytes_max);
    PACKSTONE_CHECK_OK(prepare_configs(source));
    PACKSTONE_CHECK_OK(write_tokenizer(source));
    return list_rest(source, tensors_, parts_, copy_, config_, metadata_);
  }

  std::vector<std::int32_t> stored_order(std::size_t) const override { return {}; }
  ValueRule value_rule(std::size_t) const override { return ValueRule::kSame; }

  Status write(std::size_t i, const std::vector<ByteSpan>& planes) override {
    if (i != next_ || i >= tensors_.size())
      return fail(ErrorCode::kInvalidInput, kWhere, "tensor", std::to_string(i),
                  std::to_string(next_));
    PACKSTONE_CHECK_OK(check_planes(tensors_[i], planes, kWhere));
    const PlannedTensor& tensor = tensors_[i];
    if (asks_symmetry_ && dense_type(tensor.output.format) == nullptr)
      symmetric_ = symmetric_ && zeros_in_middle(tensor.output.format, tensor.bound,
                                                 tensor.output.params, planes);
    for (const FolderPart& part : parts_[i])
      PACKSTONE_CHECK_OK(write_plane(
          part.plane < 0 ? ByteSpan(part.bytes) : planes[static_cast<std::size_t>(part.plane)]));
    ++next_;
    return {};
  }

  Status finish() override {
    if (next_ != tensors_.size())
      return fail(ErrorCode::kInvalidInput, kWhere, folder_.path().string(),
                  fmt::format("{} tensors", next_), std::to_string(tensors_.size()));
    for (const TensorView& view : carried_) PACKSTONE_CHECK_OK(write_plane(view.bytes));
    if (shard_) PACKSTONE_CHECK_OK(shard_->commit());
    std::vector<std::string> file_of;
    for (std::size_t shard = 0; shard < shards_.size(); ++shard)
      file_of.insert(file_of.end(), shards_[shard], shard_name(shard, shards_.size()));
    PACKSTONE_CHECK_OK(write_configs());
    PACKSTONE_CHECK_OK(folder_.write_text("model.safetensors.index.json",
                                          safetensors_index_text(specs_, file_of, parameters_)));
    finished_ = true;
    return {};
  }

  const std::filesystem::path& path() const override { return folder_.path(); }

  Status add_certificate(std::string_view text) override {
    return folder_.write_text(kCertificateName, text);
  }

  Status commit() override {
    if (!finished_) PACKSTONE_CHECK_OK(finish());
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

  // The modules of layouts without a format, for a copy of the folder.
  Status take_described(const Checkpoint& source) {
    PACKSTONE_CHECK_OK(check_described(source, copy_));
    PACKSTONE_TRY(carried_config_, internal::read_folder_text(kWhere, source.path, "config.json",
                                                              limits::kJsonBytesMax));
    for (const UnsupportedTensor& module : source.unsupported) {
      parameters_ += static_cast<std::uint64_t>(module.shape[0] * module.shape[1]);
      carries_head_ = carries_head_ || module.name == "lm_head.weight";
      for (const StoredPart& part : module.parts) carried_.push_back(part.view);
    }
    return {};
  }

  // Makes both forms of config.json, as the zero points are known only in the end.
  Status prepare_configs(const Checkpoint& source) {
    const std::vector<OutputTensor> outputs = outputs_of(tensors_);
    OutputFacts facts{.head = has_head(tensors_) || carries_head_,
                      .tensors = &outputs,
                      .symmetric = false,
                      .keeps_quantization = copy_};
    PACKSTONE_TRY(config_, folder_config(source, facts, metadata_));
    facts.symmetric = true;
    MetadataReport again;
    PACKSTONE_TRY(symmetric_config_, folder_config(source, facts, again));
    asks_symmetry_ = config_ != symmetric_config_;
    if (copy_)
      for (const QuantizationFile& file : source.quantization_files)
        PACKSTONE_CHECK_OK(copy_file(source, std::filesystem::path(file.name).filename().string()));
    const Json generation = folder_generation_config(source);
    if (generation.is_null()) return {};
    return write_json("generation_config.json", generation);
  }

  // GPTQModel reads quantize_config.json before config.json.
  Status write_configs() {
    if (!carried_config_.empty()) return folder_.write_text("config.json", carried_config_);
    const Json& config = symmetric_ ? symmetric_config_ : config_;
    PACKSTONE_CHECK_OK(write_json("config.json", config));
    const auto block = config.find("quantization_config");
    if (copy_ || block == config.end() || !block->contains("checkpoint_format")) return {};
    return write_json("quantize_config.json", *block);
  }

  Status write_tokenizer(const Checkpoint& source) {
    if (source.container == ContainerKind::kFolder) return copy_tokenizer(source);
    PACKSTONE_TRY(const bool lacks, lacks_tokenizer(source, metadata_));
    if (lacks) return {};
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
    for (const std::string_view name : kFurtherFiles) PACKSTONE_CHECK_OK(copy_file(source, name));
    return {};
  }

  // A file of the source that may be absent, byte for byte.
  Status copy_file(const Checkpoint& source, std::string_view name) {
    Result<std::string> text =
        internal::read_folder_text(kWhere, source.path, name, limits::kJsonBytesMax);
    if (!text && text.error().code == ErrorCode::kNotFound) return {};
    if (!text) return std::unexpected(std::move(text).error());
    return folder_.write_text(name, *text);
  }

  OutputFolder folder_;
  std::vector<PlannedTensor> tensors_;
  std::map<std::string, std::string> safetensors_metadata_;
  bool copy_ = false;           // the packed tensors are the source's, as they are
  bool asks_symmetry_ = false;  // the config says whether all zero points are in the middle
  bool symmetric_ = true;
  Json config_, symmetric_config_;
  std::vector<TensorView> carried_;  // of modules of layouts without a format
  bool carries_head_ = false;
  std::string carried_config_;  // of a copy with such modules: config.json as it is
  PartLists parts_;
  std::vector<TensorSpec> specs_;    // all shards, in order
  std::vector<std::size_t> shards_;  // specs in each
  std::optional<SafetensorsWriter> shard_;
  std::size_t next_ = 0;  // tensor
  std::size_t next_spec_ = 0;
  std::size_t opened_ = 0;  // shards
  std::size_t left_in_shard_ = 0;
  std::uint64_t parameters_ = 0;
  bool finished_ = false;
};

}  // namespace

bool is_tokenizer_file(std::string_view name) {
  return std::ranges::find(kFurtherFiles, name) != std::end(kFurtherFiles);
}

Result<MetadataReport> folder_report(const Checkpoint& source,
                                     const std::vector<PlannedTensor>& tensors,
                                     const WriteOptions& options) {
  const std::vector<OutputTensor> outputs = outputs_of(tensors);
  PACKSTONE_CHECK_OK(common_family(outputs, kWhere));
  const bool carries = options.carry_described && !source.unsupported.empty();
  const bool copy = is_copy(source, tensors, carries);
  if (carries) PACKSTONE_CHECK_OK(check_described(source, copy));
  const OutputFacts facts{.head = has_head(tensors),
                          .tensors = &outputs,
                          .symmetric = false,
                          .keeps_quantization = copy};
  MetadataReport report;
  PACKSTONE_TRY(const Json config, folder_config(source, facts, report));
  PACKSTONE_CHECK_OK(lacks_tokenizer(source, report));
  PACKSTONE_CHECK_OK(
      list_rest(source, tensors, parts_of_all(source, tensors, copy), copy, config, report));
  return report;
}

Result<std::unique_ptr<CheckpointWriter>> create_folder_writer(const std::filesystem::path& target,
                                                               const Checkpoint& source,
                                                               std::vector<PlannedTensor> tensors,
                                                               const WriteOptions& options) {
  PACKSTONE_TRY(const std::optional<FolderFamily> family,
                common_family(outputs_of(tensors), kWhere));
  std::map<std::string, std::string> metadata = source.safetensors_metadata;
  metadata["format"] = family == FolderFamily::kMlx ? "mlx" : "pt";
  PACKSTONE_TRY(OutputFolder folder, OutputFolder::create(target, options.force));
  auto writer =
      std::make_unique<FolderWriter>(std::move(folder), std::move(tensors), std::move(metadata));
  PACKSTONE_CHECK_OK(writer->start(source, options));
  return std::unique_ptr<CheckpointWriter>(std::move(writer));
}

}  // namespace packstone
