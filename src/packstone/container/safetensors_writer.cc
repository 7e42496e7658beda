#include <nlohmann/json.hpp>
#include <unordered_map>

#include "packstone/base/limits.h"
#include "packstone/container/names.h"
#include "packstone/container/safetensors.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "container.SafetensorsWriter.create";
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kHeaderAlignment = 8;

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump();
}

Status check_spec(const TensorSpec& spec) {
  const std::string subject = "tensor " + shown(spec.name);
  if (!is_legal_name(spec.name, limits::kNameBytesMax) || spec.name == kMetadata)
    return fail(ErrorCode::kInvalidInput, kWhere, subject, "an illegal name",
                fmt::format("1 to {} bytes of UTF-8 without NUL", limits::kNameBytesMax));
  if (spec.type == nullptr || safetensors_type(spec.type->name) != spec.type)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                spec.type == nullptr ? "no type" : fmt::format("type {}", spec.type->name),
                "a type of safetensors");
  if (spec.shape.size() > static_cast<std::size_t>(limits::kRankMax))
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} axes", spec.shape.size()),
                fmt::format("at most {}", limits::kRankMax));
  const auto bytes = tensor_bytes(*spec.type, spec.shape);
  if (!bytes || *bytes != spec.bytes)
    return fail(
        ErrorCode::kInvalidInput, kWhere, subject, fmt::format("{} bytes", spec.bytes),
        bytes ? fmt::format("{} for {}[{}]", *bytes, spec.type->name, fmt::join(spec.shape, ", "))
              : "a shape whose bytes fit 64 bits");
  return {};
}

// The header's text, padded so that the data starts at a multiple of 8, and the bytes of the data.
Result<std::pair<std::string, std::uint64_t>> header_text(
    const std::vector<TensorSpec>& specs, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadata);
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value))
        return fail(ErrorCode::kInvalidInput, kWhere, "metadata " + shown(key),
                    "bytes that are not UTF-8", "UTF-8");
      text +=
          fmt::format("{}{}:{}", text.back() == '{' ? "" : ",", json_text(key), json_text(value));
    }
    text += "}";
  }
  std::uint64_t offset = 0;
  std::unordered_map<std::string_view, std::size_t> names;
  for (const TensorSpec& spec : specs) {
    PACKSTONE_CHECK_OK(check_spec(spec));
    const auto [place, is_new] = names.emplace(spec.name, names.size());
    if (!is_new)
      return fail(ErrorCode::kInvalidInput, kWhere, "tensor " + shown(spec.name),
                  fmt::format("it as tensors {} and {}", place->second, names.size()), "it once");
    const auto end = checked_add(offset, spec.bytes);
    if (!end)
      return fail(ErrorCode::kInvalidInput, kWhere, "tensor " + shown(spec.name),
                  "more than 2^64 bytes of data", "fewer");
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        text.size() == 1 ? "" : ",", json_text(spec.name), spec.type->name,
                        fmt::join(spec.shape, ","), offset, *end);
    offset = *end;
  }
  text += "}";
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  if (text.size() > limits::kSafetensorsHeaderBytesMax)
    return fail(ErrorCode::kInvalidInput, kWhere, "header", fmt::format("{} bytes", text.size()),
                fmt::format("at most {}", limits::kSafetensorsHeaderBytesMax), "use more shards");
  return std::pair(std::move(text), offset);
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::filesystem::path& path, std::vector<TensorSpec> specs,
    const std::map<std::string, std::string>& metadata) {
  PACKSTONE_TRY(const auto header, header_text(specs, metadata));
  PACKSTONE_TRY(OutputFile file, OutputFile::create(path));
  std::byte length[sizeof(std::uint64_t)];
  store_le<std::uint64_t>(length, header.first.size());
  PACKSTONE_CHECK_OK(file.write(length));
  PACKSTONE_CHECK_OK(file.write(std::as_bytes(std::span(header.first))));
  return SafetensorsWriter(std::move(file), header.second);
}

Status SafetensorsWriter::write(ByteSpan bytes) {
  if (bytes.size() > bytes_left_)
    return fail(ErrorCode::kInvalidInput, "container.SafetensorsWriter.write", "data",
                fmt::format("{} bytes", bytes.size()), fmt::format("at most {}", bytes_left_));
  PACKSTONE_CHECK_OK(file_.write(bytes));
  bytes_left_ -= bytes.size();
  return {};
}

Status SafetensorsWriter::commit() {
  if (bytes_left_ != 0)
    return fail(ErrorCode::kInvalidInput, "container.SafetensorsWriter.commit", "data",
                fmt::format("{} bytes missing", bytes_left_), "all");
  return file_.commit();
}

std::vector<std::size_t> plan_shards(const std::vector<TensorSpec>& specs,
                                     std::uint64_t shard_bytes_max) {
  std::vector<std::size_t> counts;
  std::uint64_t filled = 0;
  for (const TensorSpec& spec : specs) {
    const bool fits = filled <= shard_bytes_max && spec.bytes <= shard_bytes_max - filled;
    if (counts.empty() || (!fits && counts.back() > 0)) {
      counts.push_back(0);
      filled = 0;
    }
    ++counts.back();
    filled += std::min(spec.bytes, ~std::uint64_t{0} - filled);
  }
  return counts;
}

}  // namespace packstone
