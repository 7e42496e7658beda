#include "packstone/checkpoint/certificate.h"
#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/writers.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.write_gguf";

// The GGUF type of a format, or nullptr.
const StorageType* storage_of(FormatId format) {
  if (format == kFloat32) return gguf_type("F32");
  if (format == kFloat16) return gguf_type("F16");
  if (format == kBFloat16) return gguf_type("BF16");
  constexpr std::string_view kPrefix = "gguf:";
  const std::string_view layout = format_info(format).layout;
  return layout.starts_with(kPrefix) ? gguf_type(layout.substr(kPrefix.size())) : nullptr;
}

class GgufCheckpointWriter final : public CheckpointWriter {
 public:
  GgufCheckpointWriter(GgufWriter writer, std::filesystem::path certificate,
                       std::vector<PlannedTensor> tensors, const ModelConfig& config,
                       MetadataReport report)
      : writer_(std::move(writer)),
        certificate_path_(std::move(certificate)),
        tensors_(std::move(tensors)),
        head_dim_(config.head_dim),
        plus_one_(gguf_norms_plus_one(config.architecture)) {
    metadata_ = std::move(report);
  }

  Status write_divisors(const std::vector<float>& divisors) {
    return writer_.write(std::as_bytes(std::span(divisors)));
  }

  // Stored row h*d + 2j + p is row h*d + p*(d/2) + j (CheckpointTensor, kPairedHeads).
  std::vector<std::int32_t> stored_order(std::size_t i) const override {
    const ExpectedTensor& expected = tensors_[i].expected;
    std::vector<std::int32_t> order;
    if (expected.paired_heads == 0) return order;
    order.resize(static_cast<std::size_t>(expected.paired_heads * head_dim_));
    for (std::size_t stored = 0; stored < order.size(); ++stored) {
      const auto place = static_cast<std::int64_t>(stored);
      const std::int64_t within = place % head_dim_;
      order[stored] =
          static_cast<std::int32_t>(place - within + within % 2 * (head_dim_ / 2) + within / 2);
    }
    return order;
  }

  ValueRule value_rule(std::size_t i) const override {
    return plus_one_ && tensors_[i].expected.norm ? ValueRule::kPlusOne : ValueRule::kSame;
  }

  Status write(std::size_t i, const std::vector<ByteSpan>& planes) override {
    if (i != next_ || i >= tensors_.size())
      return fail(ErrorCode::kInvalidInput, kWhere, "tensor", std::to_string(i),
                  std::to_string(next_));
    PACKSTONE_CHECK_OK(check_planes(tensors_[i], planes, kWhere));
    PACKSTONE_CHECK_OK(writer_.write(planes[0]));
    ++next_;
    return {};
  }

  Status finish() override {
    if (next_ != tensors_.size())
      return fail(ErrorCode::kInvalidInput, kWhere, "tensors", std::to_string(next_),
                  std::to_string(tensors_.size()));
    return writer_.finish();
  }

  const std::filesystem::path& path() const override { return writer_.path(); }

  Status add_certificate(std::string_view text) override {
    PACKSTONE_TRY(OutputFile file, OutputFile::create(certificate_path_));
    PACKSTONE_CHECK_OK(file.write(std::as_bytes(std::span(text))));
    PACKSTONE_CHECK_OK(file.finish());
    certificate_.emplace(std::move(file));
    return {};
  }

  // Whenever this stops, no certificate stands beside a file that it does not speak of.
  Status commit() override {
    if (next_ != tensors_.size()) return finish();
    std::error_code error;
    std::filesystem::remove(certificate_path_, error);
    if (error)
      return fail(ErrorCode::kIo, kWhere, shown_path(certificate_path_), error.message(),
                  "a certificate that can be replaced");
    PACKSTONE_CHECK_OK(writer_.commit());
    return certificate_ ? certificate_->commit() : Status();
  }

 private:
  GgufWriter writer_;
  std::filesystem::path certificate_path_;
  std::optional<OutputFile> certificate_;
  std::vector<PlannedTensor> tensors_;
  std::int64_t head_dim_;
  bool plus_one_;
  std::size_t next_ = 0;
};

// Formats without a GGUF type, and vectors that llama.cpp does not take.
Status check_formats(const std::vector<PlannedTensor>& tensors) {
  std::vector<std::string> homeless;
  std::vector<std::string> vectors;
  for (const PlannedTensor& tensor : tensors) {
    if (storage_of(tensor.output.format) == nullptr)
      homeless.push_back(tensor.output.name);
    else if (tensor.expected.vector && tensor.output.format != kFloat32)
      vectors.push_back(tensor.output.name);
  }
  if (!homeless.empty())
    return fail(ErrorCode::kUnsupported, kWhere, name_list(homeless),
                "formats that GGUF has no type for", "float32, float16, bfloat16 or a gguf layout");
  if (!vectors.empty())
    return fail(ErrorCode::kUnsupported, kWhere, name_list(vectors), "vectors that are not float32",
                "float32, as llama.cpp requires");
  return {};
}

}  // namespace

Result<std::unique_ptr<CheckpointWriter>> create_gguf_writer(const std::filesystem::path& target,
                                                             const Checkpoint& source,
                                                             std::vector<PlannedTensor> tensors) {
  PACKSTONE_CHECK_OK(check_formats(tensors));
  const std::vector<OutputTensor> outputs = outputs_of(tensors);
  OutputFacts facts;
  facts.head = has_head(tensors);
  facts.tensors = &outputs;
  MetadataReport report;
  PACKSTONE_TRY(std::vector<GgufKey> keys, gguf_keys(source, facts, report));
  const std::vector<float> divisors = gguf_rope_divisors(source);
  std::vector<TensorSpec> specs;
  if (!divisors.empty())
    specs.push_back({"rope_freqs.weight",
                     gguf_type("F32"),
                     {static_cast<std::int64_t>(divisors.size())},
                     divisors.size() * sizeof(float)});
  for (const PlannedTensor& tensor : tensors)
    specs.push_back({tensor.expected.gguf_name, storage_of(tensor.output.format),
                     tensor.output.shape,
                     plane_bytes(tensor.output.format, 0, tensor.bound, tensor.output.params)});
  PACKSTONE_TRY(GgufWriter writer, GgufWriter::create(target, std::move(keys), std::move(specs)));
  auto made = std::make_unique<GgufCheckpointWriter>(
      std::move(writer), certificate_path(target, ContainerKind::kGguf), std::move(tensors),
      source.config, std::move(report));
  if (!divisors.empty()) PACKSTONE_CHECK_OK(made->write_divisors(divisors));
  return std::unique_ptr<CheckpointWriter>(std::move(made));
}

}  // namespace packstone
