#include "packstone/container/safetensors.h"

#include <algorithm>
#include <new>
#include <tuple>

#include "packstone/base/limits.h"
#include "packstone/container/names.h"
#include "packstone/container/safetensors_header.h"

namespace packstone {
namespace {

using internal::SafetensorsRecord;

constexpr std::string_view kWhere = "container.open_safetensors";
constexpr std::string_view kHint = "get a good copy of the file";
constexpr std::uint64_t kLengthBytes = 8;

std::string tensor_subject(std::string_view file, const SafetensorsRecord& record) {
  return fmt::format("{}: tensor {}", file, shown(record.name));
}

std::string shape_text(const SafetensorsRecord& record) {
  return fmt::format("{}[{}]", record.type->name, fmt::join(record.shape, ", "));
}

// The tensor's own range against its shape and the data section.
Status check_range(const SafetensorsRecord& record, std::uint64_t data_bytes,
                   std::string_view file) {
  const std::string range = fmt::format("data_offsets [{}, {}]", record.begin, record.end);
  if (record.begin > record.end)
    return fail(ErrorCode::kCorruptData, kWhere, tensor_subject(file, record), range,
                "begin at most end", kHint);
  const std::uint64_t bytes = record.end - record.begin;
  const auto need = tensor_bytes(*record.type, record.shape);
  if (!need)
    return fail(ErrorCode::kCorruptData, kWhere, tensor_subject(file, record),
                "shape " + shape_text(record), "whole bytes that fit 64 bits", kHint);
  if (bytes != *need)
    return fail(ErrorCode::kCorruptData, kWhere, tensor_subject(file, record),
                fmt::format("{} bytes ({})", bytes, range),
                fmt::format("{} for {}", *need, shape_text(record)), kHint);
  if (!range_fits(record.begin, bytes, data_bytes))
    return fail(ErrorCode::kCorruptData, kWhere, tensor_subject(file, record), range,
                fmt::format("a range in {} data bytes", data_bytes), "file may be truncated");
  return {};
}

// The whole data section, each byte once, as the reference library demands. Records are sorted.
Status check_cover(const std::vector<SafetensorsRecord>& records, std::uint64_t data_bytes,
                   std::string_view file) {
  std::uint64_t covered = 0;
  const SafetensorsRecord* last = nullptr;
  for (const SafetensorsRecord& record : records) {
    PACKSTONE_CHECK_OK(check_range(record, data_bytes, file));
    if (record.begin != covered) {
      const std::string neighbour =
          last == nullptr ? "the start of the data" : "tensor " + shown(last->name);
      return fail(
          ErrorCode::kCorruptData, kWhere, tensor_subject(file, record),
          fmt::format("{} with {}: begins at {}", record.begin < covered ? "an overlap" : "a gap",
                      neighbour, record.begin),
          fmt::format("{}", covered), kHint);
    }
    covered = record.end;
    last = &record;
  }
  if (covered != data_bytes)
    return fail(ErrorCode::kCorruptData, kWhere, file,
                fmt::format("{} bytes after the last tensor", data_bytes - covered), "none", kHint);
  return {};
}

Result<std::string_view> header_text(ByteSpan bytes, std::string_view file) {
  if (bytes.size() < kLengthBytes)
    return fail(ErrorCode::kCorruptData, kWhere, file, fmt::format("{} bytes", bytes.size()),
                "at least 8", "file may be truncated");
  const auto length = load_le<std::uint64_t>(bytes.data());
  if (length > limits::kSafetensorsHeaderBytesMax)
    return fail(ErrorCode::kCorruptData, kWhere, file, fmt::format("a header of {} bytes", length),
                fmt::format("at most {}", limits::kSafetensorsHeaderBytesMax),
                "is this a safetensors file?");
  if (!range_fits(kLengthBytes, length, bytes.size()))
    return fail(ErrorCode::kCorruptData, kWhere, file, fmt::format("a header of {} bytes", length),
                fmt::format("at most {}", bytes.size() - kLengthBytes), "file may be truncated");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (text.empty() || text[0] != '{')
    return fail(ErrorCode::kCorruptData, kWhere, file, "a header without '{' at its start",
                "a JSON object", "is this a safetensors file?");
  return text;
}

Result<SafetensorsSet> parse(ByteSpan bytes, const std::shared_ptr<const void>& owner,
                             std::string_view file) {
  PACKSTONE_TRY(const std::string_view text, header_text(bytes, file));
  PACKSTONE_TRY(internal::SafetensorsHeader header, internal::parse_safetensors_header(text, file));
  const ByteSpan data = bytes.subspan(kLengthBytes + text.size());
  std::ranges::sort(header.records, {}, [](const SafetensorsRecord& record) {
    return std::tuple(record.begin, record.end, std::string_view(record.name));
  });
  PACKSTONE_CHECK_OK(check_cover(header.records, data.size(), file));

  SafetensorsSet set;
  set.metadata = std::move(header.metadata);
  set.tensors.reserve(header.records.size());
  for (SafetensorsRecord& record : header.records) {
    set.index.emplace(record.name, set.tensors.size());
    set.tensors.push_back({.name = std::move(record.name),
                           .type = record.type,
                           .shape = std::move(record.shape),
                           .bytes = data.subspan(record.begin, record.end - record.begin),
                           .owner = owner,
                           .file = std::string(file),
                           .file_index = 0,
                           .offset = kLengthBytes + text.size() + record.begin});
  }
  return set;
}

}  // namespace

const TensorView* SafetensorsSet::find(std::string_view name) const {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &tensors[found->second];
}

Result<SafetensorsSet> parse_safetensors(ByteSpan bytes, std::shared_ptr<const void> owner,
                                         std::string_view file) {
  try {
    return parse(bytes, owner, file);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, file, "no memory for the header", "memory");
  }
}

Result<SafetensorsSet> open_safetensors(const std::filesystem::path& path) {
  PACKSTONE_TRY(std::shared_ptr<const FileMap> map, FileMap::open(path));
  PACKSTONE_TRY(SafetensorsSet set,
                parse_safetensors(map->bytes(), map, shown_path(path.filename())));
  set.files = {path};
  return set;
}

}  // namespace packstone
