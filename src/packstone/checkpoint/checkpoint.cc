#include "packstone/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>

#include "packstone/base/limits.h"
#include "packstone/checkpoint/binder.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/container/folder_files.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.open";
// The largest config.json seen, with an entry for every module, is under 1 MB.
constexpr std::uint64_t kConfigBytesMax = 16'000'000;

Result<ContainerKind> container_of(const std::filesystem::path& path) {
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::status(path, code);
  if (status.type() == std::filesystem::file_type::not_found)
    return fail(ErrorCode::kNotFound, kWhere, shown_path(path), "no such file or folder",
                "a GGUF file or a model folder");
  if (code)
    return fail(ErrorCode::kIo, kWhere, shown_path(path), code.message(), "a path that opens");
  if (std::filesystem::is_directory(status)) return ContainerKind::kFolder;
  if (path.extension() == ".safetensors")
    return fail(ErrorCode::kInvalidInput, kWhere, shown_path(path), "a safetensors file",
                "the folder with its config.json");
  return ContainerKind::kGguf;
}

// The text of a file of the folder that may be absent.
Result<std::string> optional_text(const std::filesystem::path& folder, std::string_view name,
                                  std::uint64_t bytes_max) {
  Result<std::string> text = internal::read_folder_text(kWhere, folder, name, bytes_max);
  if (!text && text.error().code == ErrorCode::kNotFound) return std::string();
  return text;
}

Result<Json> optional_json(const std::filesystem::path& folder, std::string_view name) {
  PACKSTONE_TRY(const std::string text, optional_text(folder, name, kConfigBytesMax));
  if (text.empty()) return Json();
  return parse_json(text, kWhere, (folder / name).string());
}

// The files beside config.json that speak of quantization, in order of precedence.
Result<std::vector<QuantizationFile>> quantization_files(const std::filesystem::path& folder) {
  std::vector<QuantizationFile> files;
  for (const std::string_view name : {"quantize_config.json", "quant_config.json",
                                      "hf_quant_config.json", "quantization_config.json"}) {
    PACKSTONE_TRY(Json json, optional_json(folder, name));
    if (!json.is_null()) files.push_back({(folder / name).string(), std::move(json)});
  }
  return files;
}

// A malformed generation_config.json is ignored by the stock loaders; it is said, not obeyed.
Result<Json> generation_json(const std::filesystem::path& folder,
                             std::vector<std::string>& problems) {
  constexpr std::string_view kName = "generation_config.json";
  PACKSTONE_CHECK_OK(internal::sibling_file(kWhere, shown_path(folder), folder, kName));
  Result<Json> json = optional_json(folder, kName);
  if (json && (json->is_object() || json->is_null())) return json;
  if (!json && json.error().code != ErrorCode::kCorruptData) return json;
  problems.push_back(fmt::format("{}: not a JSON object, ignored", (folder / kName).string()));
  return Json();
}

Result<Checkpoint> open_folder(const std::filesystem::path& path) {
  const std::filesystem::path config_path = path / "config.json";
  PACKSTONE_TRY(const std::string text,
                internal::read_folder_text(kWhere, path, "config.json", kConfigBytesMax));
  PACKSTONE_TRY(Json config, parse_json(text, kWhere, config_path.string()));
  std::vector<std::string> problems;
  PACKSTONE_TRY(Json generation, generation_json(path, problems));
  PACKSTONE_TRY(std::string tokenizer,
                optional_text(path, "tokenizer.json", limits::kJsonBytesMax));
  PACKSTONE_TRY(std::string tokenizer_config,
                optional_text(path, "tokenizer_config.json", kConfigBytesMax));
  PACKSTONE_TRY(const std::vector<QuantizationFile> quantization, quantization_files(path));
  PACKSTONE_TRY(SafetensorsSet set, open_safetensors_folder(path));
  PACKSTONE_TRY(Checkpoint checkpoint,
                bind_folder(std::move(set), std::move(config), std::move(generation), path.string(),
                            quantization));
  checkpoint.problems.insert(checkpoint.problems.begin(), problems.begin(), problems.end());
  checkpoint.tokenizer_json_text = std::move(tokenizer);
  checkpoint.tokenizer_config_text = std::move(tokenizer_config);
  return checkpoint;
}

// What a user can do, or why there is no format.
std::string why_without_format(const std::string& type) {
  if (is_described_layout(type))
    return fmt::format("{} is read, described and copied (convert --to {}), not run or changed",
                       type, type);
  if (type.find(" with a factor in ") == std::string::npos) return "";
  return "blocks of ggml have no place for a factor of the whole weight, and the formats that have "
         "one order their codes otherwise";
}

}  // namespace

std::vector<std::int32_t> CheckpointTensor::stored_rows() const {
  std::vector<std::int32_t> rows;
  if (row_order == RowOrder::kSame) return rows;
  rows.resize(static_cast<std::size_t>(weight.shape().rows));
  const std::int64_t half = order_head_dim / 2;
  for (std::int64_t row = 0; row < weight.shape().rows; ++row) {
    const std::int64_t head = row / order_head_dim;
    const std::int64_t within = row % order_head_dim;
    rows[static_cast<std::size_t>(row)] =
        static_cast<std::int32_t>(head * order_head_dim + 2 * (within % half) + within / half);
  }
  return rows;
}

std::span<const TensorView> Checkpoint::stored_tensors() const {
  return container == ContainerKind::kGguf ? gguf.tensors : safetensors.tensors;
}

std::span<const std::filesystem::path> Checkpoint::weight_files() const {
  return container == ContainerKind::kGguf ? gguf.files : safetensors.files;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : &tensors[it->second];
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t total = 0;
  for (const CheckpointTensor& tensor : tensors) total += tensor.weight.bytes();
  return total;
}

std::int64_t Checkpoint::parameters() const {
  std::int64_t total = 0;
  for (const CheckpointTensor& tensor : tensors)
    total += tensor.weight.shape().rows * tensor.weight.shape().cols;
  return total;
}

Result<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  PACKSTONE_TRY(const ContainerKind kind, container_of(path));
  Result<Checkpoint> checkpoint = [&]() -> Result<Checkpoint> {
    if (kind == ContainerKind::kFolder) return open_folder(path);
    PACKSTONE_TRY(GgufFile gguf, open_gguf(path));
    return bind_gguf(std::move(gguf), path.string());
  }();
  if (checkpoint) checkpoint->path = path;
  return checkpoint;
}

Result<RawCheckpoint> open_raw(const std::filesystem::path& path) {
  RawCheckpoint raw;
  raw.path = path;
  PACKSTONE_TRY(raw.container, container_of(path));
  if (raw.container == ContainerKind::kGguf) {
    PACKSTONE_TRY(raw.gguf, open_gguf(path));
    raw.tensors = std::move(raw.gguf.tensors);
    raw.gguf.tensors.clear();
    return raw;
  }
  PACKSTONE_TRY(raw.config_json, optional_json(path, "config.json"));
  PACKSTONE_TRY(SafetensorsSet set, open_safetensors_folder(path));
  raw.tensors = std::move(set.tensors);
  raw.safetensors_metadata = std::move(set.metadata);
  return raw;
}

std::span<const std::string_view> described_layouts() {
  static constexpr std::array<std::string_view, 2> kLayouts = {"exl3", "paroquant"};
  return kLayouts;
}

bool is_described_layout(std::string_view layout) {
  return std::ranges::find(described_layouts(), layout) != described_layouts().end();
}

std::string described_fault(const UnsupportedTensor& source, const UnsupportedTensor& target) {
  if (source.type != target.type || source.shape != target.shape)
    return fmt::format("{} and {}", source.detail, target.detail);
  if (source.parts.size() != target.parts.size())
    return fmt::format("{} and {} tensors", source.parts.size(), target.parts.size());
  for (const StoredPart& part : source.parts) {
    const auto other = std::ranges::find(target.parts, part.suffix, &StoredPart::suffix);
    if (other == target.parts.end()) return fmt::format("'{}' is missing", part.view.name);
    if (other->view.type != part.view.type || other->view.shape != part.view.shape)
      return fmt::format("'{}' has another type or shape", part.view.name);
    const auto [at, unused] = std::ranges::mismatch(part.view.bytes, other->view.bytes);
    if (at != part.view.bytes.end() || part.view.bytes.size() != other->view.bytes.size())
      return fmt::format("byte {} of '{}' differs", at - part.view.bytes.begin(), part.view.name);
  }
  return {};
}

Status require_supported(const Checkpoint& checkpoint, std::string_view where) {
  if (checkpoint.unsupported.empty()) return {};
  const UnsupportedTensor& first = checkpoint.unsupported.front();
  return fail(ErrorCode::kUnsupported, where,
              fmt::format("{}: '{}'", checkpoint.path.string(), first.stored_name),
              fmt::format("type {} (and {} more such tensors)", first.type,
                          checkpoint.unsupported.size() - 1),
              "a type that this build has a format for", why_without_format(first.type));
}

}  // namespace packstone
