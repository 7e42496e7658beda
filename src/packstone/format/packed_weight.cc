#include "packstone/format/packed_weight.h"

#include <algorithm>

#include "packstone/base/limits.h"

namespace packstone {
namespace {

template <CodedFormat F>
FormatInfo make_info() {
  FormatInfo info{kFormatId<F>,
                  F::kName,
                  F::kLayout,
                  F::kSource,
                  F::Scheme::kKind,
                  F::kCodeBits,
                  static_cast<int>(F::kPlanes.size()),
                  {},
                  F::kParams,
                  F::kGroups,
                  has_offset<F>()};
  for (std::size_t i = 0; i < F::kPlanes.size(); ++i) info.plane_suffix[i] = F::kPlanes[i].suffix;
  return info;
}

template <class... Formats>
std::array<FormatInfo, sizeof...(Formats)> make_table(FormatList<Formats...>) {
  return {make_info<Formats>()...};
}

const auto& table() {
  static const auto infos = make_table(AllFormats{});
  return infos;
}

}  // namespace

const FormatInfo& format_info(FormatId id) {
  return table()[static_cast<std::size_t>(id)];
}

std::optional<FormatId> find_format(std::string_view name) {
  for (const FormatInfo& info : table())
    if (info.name == name) return info.id;
  return std::nullopt;
}

std::optional<FormatId> find_layout(std::string_view layout, int code_bits) {
  std::optional<FormatId> found;
  for (const FormatInfo& info : table()) {
    if (info.layout != layout || (code_bits != 0 && info.code_bits != code_bits)) continue;
    if (found) return std::nullopt;
    found = info.id;
  }
  return found;
}

const char* layout_rule(FormatId id, Shape shape, const FormatParams& params) {
  if (shape.rows < 0 || shape.cols < 0) return "rows and cols of at least 0";
  // A side counts even where the other is empty: work is done row by row.
  std::int64_t elements = 0;
  if (__builtin_mul_overflow(std::max<std::int64_t>(shape.rows, 1),
                             std::max<std::int64_t>(shape.cols, 1), &elements) ||
      elements > limits::kMatrixElementsMax)
    return "at most 2^48 elements, rows or cols";
  return visit(id, [&]<class F>() { return F::legal(shape, params); });
}

std::uint64_t plane_bytes(FormatId id, int plane, Shape shape, const FormatParams& params) {
  return visit(id,
               [&]<class F>() -> std::uint64_t { return F::plane_bytes(plane, shape, params); });
}

std::uint64_t weight_bytes(FormatId id, Shape shape, const FormatParams& params) {
  std::uint64_t bytes = 0;
  for (int plane = 0; plane < format_info(id).plane_count; ++plane)
    bytes += plane_bytes(id, plane, shape, params);
  return bytes;
}

std::string_view float_name(FloatType type) {
  switch (type) {
    case FloatType::kF32:
      return DenseF32::kName;
    case FloatType::kF16:
      return DenseF16::kName;
    case FloatType::kBF16:
      return DenseBF16::kName;
  }
  return {};
}

std::int64_t group_cols(FormatId id, const FormatParams& params) {
  return visit(id, [&]<class F>() -> std::int64_t { return F::group_cols(params); });
}

Result<PackedWeight> PackedWeight::bind(FormatId id, Shape shape, const FormatParams& params,
                                        std::vector<ByteSpan> planes,
                                        std::shared_ptr<const void> owner,
                                        std::string_view subject) {
  constexpr std::string_view kWhere = "format.bind";
  const FormatInfo& info = format_info(id);
  if (const char* rule = layout_rule(id, shape, params))
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} of [{}, {}], group {}", info.name, shape.rows, shape.cols,
                            params.group_cols),
                rule);
  if (planes.size() != static_cast<std::size_t>(info.plane_count))
    return fail(ErrorCode::kCorruptData, kWhere, subject, fmt::format("{} planes", planes.size()),
                fmt::format("{} for {}", info.plane_count, info.name));
  for (int plane = 0; plane < info.plane_count; ++plane) {
    const std::uint64_t need = plane_bytes(id, plane, shape, params);
    if (planes[static_cast<std::size_t>(plane)].size() != need)
      return fail(ErrorCode::kCorruptData, kWhere,
                  fmt::format("{}{}", subject, info.plane_suffix[static_cast<std::size_t>(plane)]),
                  fmt::format("{} bytes", planes[static_cast<std::size_t>(plane)].size()),
                  fmt::format("{} for {} of [{}, {}]", need, info.name, shape.rows, shape.cols),
                  "the file may be truncated or its config may belong to another file");
  }
  PackedWeight weight;
  weight.id_ = id;
  weight.shape_ = shape;
  weight.params_ = params;
  weight.planes_ = std::move(planes);
  weight.owner_ = std::move(owner);
  return weight;
}

std::uint64_t PackedWeight::bytes() const {
  std::uint64_t bytes = 0;
  for (const ByteSpan& plane : planes_) bytes += plane.size();
  return bytes;
}

double PackedWeight::bits_per_weight() const {
  const double count = static_cast<double>(shape_.rows) * static_cast<double>(shape_.cols);
  return count == 0 ? 0 : 8.0 * static_cast<double>(bytes()) / count;
}

std::array<const unsigned char*, kPlanesMax> PackedWeight::plane_pointers() const {
  std::array<const unsigned char*, kPlanesMax> pointers{};
  for (std::size_t i = 0; i < planes_.size(); ++i)
    pointers[i] = reinterpret_cast<const unsigned char*>(planes_[i].data());
  return pointers;
}

}  // namespace packstone
