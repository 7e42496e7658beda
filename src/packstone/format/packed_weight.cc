#include "packstone/format/packed_weight.h"

#include <algorithm>

#include "packstone/base/limits.h"

namespace packstone {
namespace {

// level / unit of every code of a table scheme.
template <class Scheme, int Bits>
std::span<const std::int16_t> integer_levels() {
  static constexpr auto kLevels = [] {
    std::array<std::int16_t, std::size_t{1} << Bits> levels{};
    for (std::size_t code = 0; code < levels.size(); ++code)
      levels[code] =
          static_cast<std::int16_t>(Scheme::integer_level(static_cast<std::uint32_t>(code)));
    return levels;
  }();
  return kLevels;
}

template <CodedFormat F>
FormatInfo make_info() {
  FormatInfo info;
  info.id = kFormatId<F>;
  info.name = F::kName;
  info.layout = F::kLayout;
  info.source = F::kSource;
  info.scheme = F::Scheme::kKind;
  info.code_bits = F::kCodeBits;
  info.plane_count = static_cast<int>(F::kPlanes.size());
  for (std::size_t i = 0; i < F::kPlanes.size(); ++i) {
    info.plane_suffix[i] = F::kPlanes[i].suffix;
    info.plane_type[i] = F::kPlanes[i].type;
  }
  info.params = F::kParams;
  info.group_sizes = F::kGroups;
  info.has_offset = has_offset<F>();
  info.writable = is_writable<F>();
  info.block_codes = BlockCodes<F>;
  info.shares_rows = SharesPlaces<F>;
  info.finite_only = is_finite_only<F>();
  info.index_plane = index_plane<F>();
  for (const ParamSpec& spec : F::kParams) {
    if (spec.kind == ParamKind::kZero) info.zero_bits = spec.bits;
    if (spec.kind == ParamKind::kSuperScale || spec.kind == ParamKind::kSuperOffset)
      info.shares_groups = true;
  }
  if constexpr (F::Scheme::kKind == SchemeKind::kTable) {
    info.table = F::Scheme::kTableName;
    if constexpr (HasReciprocal<typename F::Scheme>)
      info.reciprocal_table = F::Scheme::kReciprocalTable;
    if constexpr (HasIntegerLevels<typename F::Scheme>) {
      info.integer_levels = integer_levels<typename F::Scheme, F::kCodeBits>();
      info.unit = F::Scheme::kUnit;
    }
  }
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

// The first column whose stored group number is out of range or, without act_order, not its own;
// -1 when all are well.
std::int64_t bad_group_number(ByteSpan plane, Shape shape, const FormatParams& params,
                              std::int64_t width) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(plane.data());
  const std::int64_t groups = ceil_div(shape.cols, width);
  for (std::int64_t col = 0; col < shape.cols; ++col) {
    const std::uint32_t group = read_bits(bytes, 32 * static_cast<std::uint64_t>(col), 32);
    if (params.act_order ? group >= groups : group != static_cast<std::uint64_t>(col / width))
      return col;
  }
  return -1;
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

PlaneDims plane_dims(FormatId id, int plane, Shape shape, const FormatParams& params) {
  return visit(id, [&]<class F>() { return F::plane_dims(plane, shape, params); });
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
  if (info.index_plane >= 0) {
    const ByteSpan numbers = planes[static_cast<std::size_t>(info.index_plane)];
    const std::int64_t width = group_cols(id, params);
    const std::int64_t col = bad_group_number(numbers, shape, params, width);
    if (col >= 0)
      return fail(ErrorCode::kCorruptData, kWhere,
                  fmt::format("{}{}", subject,
                              info.plane_suffix[static_cast<std::size_t>(info.index_plane)]),
                  fmt::format("group {} of column {}",
                              static_cast<std::int32_t>(
                                  read_bits(reinterpret_cast<const unsigned char*>(numbers.data()),
                                            32 * static_cast<std::uint64_t>(col), 32)),
                              col),
                  params.act_order ? fmt::format("0 to {}", ceil_div(shape.cols, width) - 1)
                                   : fmt::format("{}, its column / {} (act-order is not stated)",
                                                 col / width, width));
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
