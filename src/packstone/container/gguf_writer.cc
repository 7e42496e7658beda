#include <unordered_map>
#include <unordered_set>

#include "packstone/container/gguf_rules.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "container.GgufWriter.create";

std::unexpected<Error> refuse(std::string_view subject, std::string_view got,
                              std::string_view need) {
  return fail(ErrorCode::kInvalidInput, kWhere, subject, got, need);
}

// The bytes before the tensors' data.
class HeaderBytes {
 public:
  template <class T>
  void number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    store_le(bytes_.data() + at, value);
  }
  void raw(std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), data, data + text.size());
  }
  void text(std::string_view text) {
    number<std::uint64_t>(text.size());
    raw(text);
  }
  void value(const GgufValue& value) {
    number(static_cast<std::uint32_t>(value.index()));
    std::visit([this](const auto& item) { put(item); }, value);
  }
  void pad(std::uint32_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }
  ByteSpan bytes() const { return bytes_; }

 private:
  void put(bool item) { number<std::uint8_t>(item ? 1 : 0); }
  void put(const std::string& item) { text(item); }
  void put(const GgufArray& array) {
    number(static_cast<std::uint32_t>(array.items.index()));
    std::visit(
        [this](const auto& items) {
          number<std::uint64_t>(items.size());
          for (const auto& item : items) put(item);
        },
        array.items);
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T item) {
    number(item);
  }

  std::vector<std::byte> bytes_;
};

int array_depth(const GgufArray& array) {
  int depth = 1;
  if (const auto* nested = std::get_if<std::vector<GgufArray>>(&array.items))
    for (const GgufArray& item : *nested) depth = std::max(depth, 1 + array_depth(item));
  return depth;
}

Status check_keys(const std::vector<GgufKey>& keys) {
  std::unordered_set<std::string_view> names;
  for (const GgufKey& key : keys) {
    const std::string subject = "key " + shown(key.name);
    if (!is_legal_name(key.name, limits::kGgufKeyBytesMax))
      return refuse(subject, "an illegal name",
                    fmt::format("1 to {} bytes of UTF-8 without NUL", limits::kGgufKeyBytesMax));
    if (!names.insert(key.name).second) return refuse(subject, "it twice", "it once");
    const auto* array = std::get_if<GgufArray>(&key.value);
    if (array != nullptr && array_depth(*array) > limits::kGgufArrayDepthMax)
      return refuse(subject, "arrays nested deeper",
                    fmt::format("at most {} levels", limits::kGgufArrayDepthMax));
  }
  return {};
}

Status check_spec(const TensorSpec& spec) {
  const std::string subject = "tensor " + shown(spec.name);
  if (!is_legal_name(spec.name, limits::kNameBytesMax))
    return refuse(subject, "an illegal name",
                  fmt::format("1 to {} bytes of UTF-8 without NUL", limits::kNameBytesMax));
  if (spec.type == nullptr || gguf_type(spec.type->gguf_id) != spec.type)
    return refuse(subject,
                  spec.type == nullptr ? "no type" : fmt::format("type {}", spec.type->name),
                  "a type of GGUF");
  if (spec.shape.size() > internal::kGgufRankMax)
    return refuse(subject, fmt::format("{} axes", spec.shape.size()),
                  fmt::format("at most {}", internal::kGgufRankMax));
  const auto bytes = tensor_bytes(*spec.type, spec.shape);
  if (!bytes || *bytes != spec.bytes)
    return refuse(
        subject, fmt::format("{} bytes", spec.bytes),
        bytes ? fmt::format("{} for {}[{}]", *bytes, spec.type->name, fmt::join(spec.shape, ", "))
              : "a shape of whole blocks whose bytes fit 64 bits");
  return {};
}

// Appends the tensor table.
Status put_tensors(HeaderBytes& header, const std::vector<TensorSpec>& specs,
                   std::uint32_t alignment) {
  std::unordered_map<std::string_view, std::size_t> names;
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    PACKSTONE_CHECK_OK(check_spec(spec));
    const auto [place, is_new] = names.emplace(spec.name, names.size());
    if (!is_new)
      return refuse("tensor " + shown(spec.name),
                    fmt::format("it as tensors {} and {}", place->second, names.size()), "it once");
    header.text(spec.name);
    header.number(static_cast<std::uint32_t>(spec.shape.size()));
    for (auto axis = spec.shape.rbegin(); axis != spec.shape.rend(); ++axis)
      header.number(static_cast<std::uint64_t>(*axis));
    header.number(static_cast<std::uint32_t>(spec.type->gguf_id));
    header.number(offset);
    const auto end = checked_add(offset, spec.bytes);
    const auto next = end ? checked_align(*end, alignment) : std::nullopt;
    if (!next) return refuse("tensor " + shown(spec.name), "more than 2^64 bytes of data", "fewer");
    offset = *next;
  }
  return {};
}

}  // namespace

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& path, std::vector<GgufKey> keys,
                                      std::vector<TensorSpec> specs) {
  PACKSTONE_CHECK_OK(check_keys(keys));
  PACKSTONE_TRY(const std::uint32_t alignment,
                internal::gguf_alignment(keys, ErrorCode::kInvalidInput, kWhere, "metadata"));
  HeaderBytes header;
  header.raw(internal::kGgufMagic);
  header.number(internal::kGgufVersion);
  header.number<std::uint64_t>(specs.size());
  header.number<std::uint64_t>(keys.size());
  for (const GgufKey& key : keys) {
    header.text(key.name);
    header.value(key.value);
  }
  PACKSTONE_CHECK_OK(put_tensors(header, specs, alignment));
  header.pad(alignment);
  PACKSTONE_TRY(OutputFile file, OutputFile::create(path));
  PACKSTONE_CHECK_OK(file.write(header.bytes()));
  std::vector<std::uint64_t> sizes;
  for (const TensorSpec& spec : specs)
    if (spec.bytes > 0) sizes.push_back(spec.bytes);
  return GgufWriter(std::move(file), std::move(sizes), alignment);
}

Status GgufWriter::write(ByteSpan bytes) {
  while (!bytes.empty()) {
    if (current_ == sizes_.size())
      return fail(ErrorCode::kInvalidInput, "container.GgufWriter.write", "data",
                  fmt::format("{} bytes after the last tensor", bytes.size()), "none");
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), sizes_[current_] - written_);
    PACKSTONE_CHECK_OK(file_.write(bytes.first(count)));
    bytes = bytes.subspan(count);
    written_ += count;
    if (written_ < sizes_[current_]) break;
    const std::vector<std::byte> padding((alignment_ - file_.size() % alignment_) % alignment_);
    PACKSTONE_CHECK_OK(file_.write(padding));
    written_ = 0;
    ++current_;
  }
  return {};
}

Status GgufWriter::finish() {
  if (current_ != sizes_.size())
    return fail(ErrorCode::kInvalidInput, "container.GgufWriter.finish", "data",
                fmt::format("{} of {} tensors with data", current_, sizes_.size()), "all");
  return file_.finish();
}

Status GgufWriter::commit() {
  if (current_ != sizes_.size()) return finish();
  return file_.commit();
}

}  // namespace packstone
