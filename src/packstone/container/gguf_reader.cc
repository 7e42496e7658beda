#include <algorithm>
#include <bit>
#include <new>
#include <unordered_map>

#include "packstone/container/gguf_rules.h"
#include "packstone/container/names.h"

namespace packstone {
namespace internal {

Result<std::uint32_t> gguf_alignment(const std::vector<GgufKey>& keys, ErrorCode code,
                                     std::string_view where, std::string_view file) {
  for (const GgufKey& key : keys) {
    if (key.name != kGgufAlignmentKey) continue;
    const std::string subject = fmt::format("{}: key '{}'", file, kGgufAlignmentKey);
    const auto* value = std::get_if<std::uint32_t>(&key.value);
    if (value == nullptr)
      return fail(code, where, subject, "a value of another type", "a value of type u32");
    if (!std::has_single_bit(*value) || *value > limits::kGgufAlignmentMax)
      return fail(code, where, subject, fmt::format("{}", *value),
                  fmt::format("a power of two up to {}", limits::kGgufAlignmentMax));
    return *value;
  }
  return kGgufAlignmentDefault;
}

}  // namespace internal

namespace {

constexpr std::string_view kWhere = "container.open_gguf";
constexpr std::string_view kTruncated = "file may be truncated";
constexpr std::uint64_t kKeyBytesMin = 8 + 4 + 1;         // length, type, value
constexpr std::uint64_t kTensorBytesMin = 8 + 4 + 4 + 8;  // length, rank, type, offset
constexpr std::uint64_t kArrayBytesMin = 4 + 8;           // type, count
constexpr std::uint64_t kReservedMax = 1 << 16;           // trust in a count before its items

// GPTQModel 7.3 has numbers of its own from 40 on. Its 41 is ggml's block; its 40 is not, and has
// another size, so that such a file breaks a size check.
constexpr std::int32_t kClashingType = 40;
constexpr std::string_view kClash =
    "tensor type 40 is NVFP4 (36 bytes for 64 weights) in ggml and here, but Q1_0 (6 bytes for 32) "
    "in GPTQModel 7.3: the file may be one of GPTQModel 7.3, or truncated";

// A tensor's record and its place in the table, for messages.
struct TensorRecord {
  std::string name;
  const StorageType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Reads forward through one file. Every read is checked against the bytes left.
class GgufParser {
 public:
  GgufParser(ByteSpan bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  Result<GgufFile> parse(const std::shared_ptr<const void>& owner);

 private:
  std::uint64_t left() const { return bytes_.size() - position_; }

  std::unexpected<Error> fail_at(std::string_view what, std::string_view got, std::string_view need,
                                 std::string_view hint = {}) const {
    return fail(ErrorCode::kCorruptData, kWhere,
                what.empty() ? std::string(file_) : fmt::format("{}: {}", file_, what), got, need,
                hint);
  }
  std::unexpected<Error> fail_end(std::string_view what) const {
    return fail_at(what, fmt::format("the end of the file at byte {}", bytes_.size()), "more bytes",
                   kTruncated);
  }

  template <class T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) return fail_end(what);
    const T value = load_le<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return value;
  }
  Result<std::string_view> text(std::string_view what);
  Result<bool> boolean(std::string_view what);
  Result<GgufValue> value(std::uint32_t type, std::string_view what);
  Result<GgufArray> array(std::string_view what, int depth);
  template <class T>
  Result<GgufArray> array_items(std::uint64_t count, std::string_view what, int depth);

  Status read_header();
  Status read_keys(GgufFile& out);
  Status read_tensors();
  Result<TensorRecord> read_tensor(std::uint64_t index);
  std::string_view size_hint(std::string_view other) const;
  Status place_tensors(GgufFile& out, const std::shared_ptr<const void>& owner);

  ByteSpan bytes_;
  std::string_view file_;
  std::uint64_t position_ = 0;
  std::uint32_t version_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
  std::vector<TensorRecord> records_;
};

Result<std::string_view> GgufParser::text(std::string_view what) {
  PACKSTONE_TRY(const std::uint64_t size, number<std::uint64_t>(what));
  if (size > left())
    return fail_at(what, fmt::format("a string of {} bytes", size),
                   fmt::format("at most the {} bytes left", left()), kTruncated);
  const std::string_view result(reinterpret_cast<const char*>(bytes_.data()) + position_, size);
  position_ += size;
  return result;
}

Result<bool> GgufParser::boolean(std::string_view what) {
  PACKSTONE_TRY(const std::uint8_t byte, number<std::uint8_t>(what));
  if (byte > 1) return fail_at(what, fmt::format("a bool of {}", byte), "0 or 1");
  return byte == 1;
}

Result<GgufValue> GgufParser::value(std::uint32_t type, std::string_view what) {
  switch (type) {
    case 0:
      return number<std::uint8_t>(what);
    case 1:
      return number<std::int8_t>(what);
    case 2:
      return number<std::uint16_t>(what);
    case 3:
      return number<std::int16_t>(what);
    case 4:
      return number<std::uint32_t>(what);
    case 5:
      return number<std::int32_t>(what);
    case 6:
      return number<float>(what);
    case 7:
      return boolean(what);
    case 8: {
      PACKSTONE_TRY(const std::string_view item, text(what));
      return GgufValue(std::string(item));
    }
    case 9:
      return array(what, 1);
    case 10:
      return number<std::uint64_t>(what);
    case 11:
      return number<std::int64_t>(what);
    case 12:
      return number<double>(what);
    default:
      return fail_at(what, fmt::format("value type {}", type), "0 to 12");
  }
}

template <class T>
Result<GgufArray> GgufParser::array_items(std::uint64_t count, std::string_view what, int depth) {
  constexpr bool kPlain = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
  constexpr std::uint64_t kItemBytesMin = std::is_same_v<T, std::string> ? sizeof(std::uint64_t)
                                          : std::is_same_v<T, GgufArray> ? kArrayBytesMin
                                                                         : sizeof(T);
  if (count > left() / kItemBytesMin)
    return fail_at(what, fmt::format("an array of {} items", count),
                   fmt::format("at most {} in the {} bytes left", left() / kItemBytesMin, left()),
                   kTruncated);
  std::vector<T> items;
  if constexpr (kPlain) {
    items.resize(count);
    if (count > 0) std::memcpy(items.data(), bytes_.data() + position_, count * sizeof(T));
    position_ += count * sizeof(T);
  } else {
    items.reserve(std::min(count, kReservedMax));
    for (std::uint64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bool>) {
        PACKSTONE_TRY(const bool item, boolean(what));
        items.push_back(item);
      } else if constexpr (std::is_same_v<T, std::string>) {
        PACKSTONE_TRY(const std::string_view item, text(what));
        items.emplace_back(item);
      } else {
        PACKSTONE_TRY(GgufArray item, array(what, depth + 1));
        items.push_back(std::move(item));
      }
    }
  }
  return GgufArray{std::move(items)};
}

Result<GgufArray> GgufParser::array(std::string_view what, int depth) {
  if (depth > limits::kGgufArrayDepthMax)
    return fail_at(what, "arrays nested deeper",
                   fmt::format("at most {} levels", limits::kGgufArrayDepthMax));
  PACKSTONE_TRY(const std::uint32_t type, number<std::uint32_t>(what));
  PACKSTONE_TRY(const std::uint64_t count, number<std::uint64_t>(what));
  switch (type) {
    case 0:
      return array_items<std::uint8_t>(count, what, depth);
    case 1:
      return array_items<std::int8_t>(count, what, depth);
    case 2:
      return array_items<std::uint16_t>(count, what, depth);
    case 3:
      return array_items<std::int16_t>(count, what, depth);
    case 4:
      return array_items<std::uint32_t>(count, what, depth);
    case 5:
      return array_items<std::int32_t>(count, what, depth);
    case 6:
      return array_items<float>(count, what, depth);
    case 7:
      return array_items<bool>(count, what, depth);
    case 8:
      return array_items<std::string>(count, what, depth);
    case 9:
      return array_items<GgufArray>(count, what, depth);
    case 10:
      return array_items<std::uint64_t>(count, what, depth);
    case 11:
      return array_items<std::int64_t>(count, what, depth);
    case 12:
      return array_items<double>(count, what, depth);
    default:
      return fail_at(what, fmt::format("array element type {}", type), "0 to 12");
  }
}

Status GgufParser::read_header() {
  constexpr std::string_view kWhat = "header";
  if (bytes_.size() < internal::kGgufMagic.size() ||
      std::memcmp(bytes_.data(), internal::kGgufMagic.data(), internal::kGgufMagic.size()) != 0)
    return fail_at(kWhat, "no magic 'GGUF'", "it", "is this a GGUF file?");
  position_ = internal::kGgufMagic.size();
  PACKSTONE_TRY(version_, number<std::uint32_t>(kWhat));
  if (version_ != 0 && (version_ & 0xFFFFu) == 0)
    return fail(ErrorCode::kUnsupported, kWhere, file_, "a big-endian file", "little-endian",
                "convert it with the gguf package");
  if (version_ != 2 && version_ != 3)
    return fail(version_ == 0 ? ErrorCode::kCorruptData : ErrorCode::kUnsupported, kWhere, file_,
                fmt::format("version {}", version_), "2 or 3");
  PACKSTONE_TRY(tensor_count_, number<std::uint64_t>(kWhat));
  PACKSTONE_TRY(key_count_, number<std::uint64_t>(kWhat));
  if (key_count_ > left() / kKeyBytesMin)
    return fail_at(kWhat, fmt::format("{} keys", key_count_),
                   fmt::format("at most {} in {} bytes", left() / kKeyBytesMin, left()));
  const std::uint64_t tensors_max =
      std::min(limits::kTensorsMax, (left() - key_count_ * kKeyBytesMin) / kTensorBytesMin);
  if (tensor_count_ > tensors_max)
    return fail_at(kWhat, fmt::format("{} tensors", tensor_count_),
                   fmt::format("at most {} in {} bytes", tensors_max, left()));
  return {};
}

Status GgufParser::read_keys(GgufFile& out) {
  std::unordered_map<std::string_view, std::uint64_t> seen;
  out.keys.reserve(std::min(key_count_, kReservedMax));
  for (std::uint64_t i = 0; i < key_count_; ++i) {
    PACKSTONE_TRY(const std::string_view name, text(fmt::format("key {}", i)));
    if (!is_legal_name(name, limits::kGgufKeyBytesMax))
      return fail_at(fmt::format("key {} {}", i, shown(name)), "an illegal name",
                     fmt::format("1 to {} bytes of UTF-8 without NUL", limits::kGgufKeyBytesMax));
    const std::string what = "key " + shown(name);
    const auto [place, is_new] = seen.emplace(name, i);
    if (!is_new)
      return fail_at(what, fmt::format("it as keys {} and {}", place->second, i), "it once");
    PACKSTONE_TRY(const std::uint32_t type, number<std::uint32_t>(what));
    PACKSTONE_TRY(GgufValue item, value(type, what));
    out.keys.push_back({std::string(name), std::move(item)});
  }
  return {};
}

Result<TensorRecord> GgufParser::read_tensor(std::uint64_t index) {
  TensorRecord record;
  const std::string position = fmt::format("tensor {}", index);
  PACKSTONE_TRY(record.name, text(position));
  const std::string what = fmt::format("tensor {}", shown(record.name));
  if (!is_legal_name(record.name, limits::kNameBytesMax))
    return fail_at(position + " " + shown(record.name), "an illegal name",
                   fmt::format("1 to {} bytes of UTF-8 without NUL", limits::kNameBytesMax));
  PACKSTONE_TRY(const std::uint32_t rank, number<std::uint32_t>(what));
  if (rank > internal::kGgufRankMax)
    return fail_at(what, fmt::format("{} dimensions", rank),
                   fmt::format("at most {}", internal::kGgufRankMax));
  record.shape.resize(rank);
  for (std::uint32_t i = 0; i < rank; ++i) {
    PACKSTONE_TRY(const std::uint64_t axis, number<std::uint64_t>(what));
    if (axis > static_cast<std::uint64_t>(INT64_MAX))
      return fail_at(what, fmt::format("a dimension of {}", axis), "a signed 64-bit number");
    record.shape[rank - 1 - i] = static_cast<std::int64_t>(axis);
  }
  PACKSTONE_TRY(const std::uint32_t type, number<std::uint32_t>(what));
  record.type = type <= static_cast<std::uint32_t>(INT32_MAX)
                    ? gguf_type(static_cast<std::int32_t>(type))
                    : nullptr;
  if (record.type == nullptr)
    return fail(ErrorCode::kUnsupported, kWhere, fmt::format("{}: {}", file_, what),
                fmt::format("tensor type {}", type), "a type of ggml 0.26");
  PACKSTONE_TRY(record.offset, number<std::uint64_t>(what));
  const auto size = tensor_bytes(*record.type, record.shape);
  if (!size)
    return fail_at(what,
                   fmt::format("shape {}[{}]", record.type->name, fmt::join(record.shape, ", ")),
                   fmt::format("rows of whole blocks of {} and bytes that fit 64 bits",
                               record.type->block_cols),
                   record.type->gguf_id == kClashingType ? kClash : std::string_view{});
  record.bytes = *size;
  return record;
}

Status GgufParser::read_tensors() {
  std::unordered_map<std::string_view, std::uint64_t> seen;
  records_.reserve(tensor_count_);  // so that the names in `seen` stay where they are
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    PACKSTONE_TRY(TensorRecord record, read_tensor(i));
    records_.push_back(std::move(record));
    const auto [place, is_new] = seen.emplace(records_.back().name, i);
    if (!is_new)
      return fail_at("tensor " + shown(records_.back().name),
                     fmt::format("it as tensors {} and {}", place->second, i), "it once");
  }
  return {};
}

std::string_view GgufParser::size_hint(std::string_view other) const {
  const bool clashes = std::ranges::any_of(
      records_, [](const TensorRecord& record) { return record.type->gguf_id == kClashingType; });
  return clashes ? kClash : other;
}

// Each tensor begins where the one before ends, rounded up to the alignment (gguf.cpp demands the
// same); padding after the last may be absent, other bytes may not follow.
Status GgufParser::place_tensors(GgufFile& out, const std::shared_ptr<const void>& owner) {
  if (records_.empty() && left() < out.alignment) return {};
  const auto start = checked_align(position_, out.alignment);
  if (!start || *start > bytes_.size()) return fail_end("tensor data");
  const ByteSpan data = bytes_.subspan(*start);
  std::uint64_t expected = 0;
  out.tensors.reserve(records_.size());
  for (TensorRecord& record : records_) {
    const std::string what = "tensor " + shown(record.name);
    if (record.offset != expected)
      return fail_at(what, fmt::format("offset {}", record.offset),
                     fmt::format("{}, the end of the tensor before, aligned", expected),
                     size_hint({}));
    if (!range_fits(record.offset, record.bytes, data.size()))
      return fail_at(what, fmt::format("{} bytes at {}", record.bytes, record.offset),
                     fmt::format("a range in {} data bytes", data.size()), size_hint(kTruncated));
    const auto next = checked_align(record.offset + record.bytes, out.alignment);
    if (!next) return fail_at(what, "an end beyond 64 bits", "an end in the file");
    expected = *next;
    out.tensors.push_back({.name = std::move(record.name),
                           .type = record.type,
                           .shape = std::move(record.shape),
                           .bytes = data.subspan(record.offset, record.bytes),
                           .owner = owner,
                           .file = std::string(file_),
                           .file_index = 0,
                           .offset = *start + record.offset});
  }
  if (data.size() > expected)
    return fail_at("", fmt::format("{} bytes after the last tensor", data.size() - expected),
                   "none");
  return {};
}

Result<GgufFile> GgufParser::parse(const std::shared_ptr<const void>& owner) {
  GgufFile out;
  PACKSTONE_CHECK_OK(read_header());
  out.version = version_;
  PACKSTONE_CHECK_OK(read_keys(out));
  PACKSTONE_TRY(out.alignment,
                internal::gguf_alignment(out.keys, ErrorCode::kCorruptData, kWhere, file_));
  PACKSTONE_CHECK_OK(read_tensors());
  PACKSTONE_CHECK_OK(place_tensors(out, owner));
  return out;
}

}  // namespace

Result<GgufFile> parse_gguf(ByteSpan bytes, std::shared_ptr<const void> owner,
                            std::string_view file) {
  try {
    return GgufParser(bytes, file).parse(owner);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, file, "no memory for the metadata", "memory");
  }
}

}  // namespace packstone
