#include "packstone/transcode/unpack.h"

#include "packstone/base/check.h"
#include "packstone/format/registry.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

std::size_t group_count(const PackedWeight& weight) {
  return static_cast<std::size_t>(
      ceil_div(weight.shape().cols, group_cols(weight.id(), weight.params())));
}

bool row_in_range(const PackedWeight& weight, std::int64_t row) {
  return row >= 0 && row < weight.shape().rows;
}

}  // namespace

void decode_row(const PackedWeight& weight, std::int64_t row, std::span<float> out) {
  PACKSTONE_ASSERT(row_in_range(weight, row));
  PACKSTONE_ASSERT(static_cast<std::int64_t>(out.size()) == weight.shape().cols);
  const auto planes = weight.plane_pointers();
  format_ops(weight.id())
      .decode_row({planes.data(), weight.shape(), weight.params()}, row, out.data());
}

void decode_rows(const PackedWeight& weight, std::int64_t row, std::int64_t rows,
                 std::span<float> out) {
  PACKSTONE_ASSERT(row >= 0 && rows >= 0 && row + rows <= weight.shape().rows);
  PACKSTONE_ASSERT(static_cast<std::int64_t>(out.size()) == rows * weight.shape().cols);
  const auto planes = weight.plane_pointers();
  format_ops(weight.id())
      .decode_rows({planes.data(), weight.shape(), weight.params()}, row, rows, out.data());
}

void unpack_row(const PackedWeight& weight, std::int64_t row, std::span<std::uint32_t> codes,
                std::span<GroupValues> groups) {
  PACKSTONE_ASSERT(row_in_range(weight, row));
  PACKSTONE_ASSERT(static_cast<std::int64_t>(codes.size()) == weight.shape().cols);
  PACKSTONE_ASSERT(groups.size() == group_count(weight));
  const auto planes = weight.plane_pointers();
  const ConstPlanes bytes{planes.data(), weight.shape(), weight.params()};
  const FormatOps& ops = format_ops(weight.id());
  ops.read_codes(bytes, row, codes.data());
  ops.read_values(bytes, row, groups);
}

void group_values_row(const PackedWeight& weight, std::int64_t row, std::span<GroupValues> groups) {
  PACKSTONE_ASSERT(row_in_range(weight, row));
  PACKSTONE_ASSERT(groups.size() == group_count(weight));
  const auto planes = weight.plane_pointers();
  format_ops(weight.id())
      .read_values({planes.data(), weight.shape(), weight.params()}, row, groups);
}

void raw_params_row(const PackedWeight& weight, std::int64_t row, std::span<RawParams> raw) {
  PACKSTONE_ASSERT(row_in_range(weight, row));
  PACKSTONE_ASSERT(raw.size() == group_count(weight));
  const auto planes = weight.plane_pointers();
  format_ops(weight.id()).read_params({planes.data(), weight.shape(), weight.params()}, row, raw);
}

bool pack_row(FormatId id, Shape shape, const FormatParams& params, unsigned char* const* planes,
              std::int64_t row, std::span<const std::uint32_t> codes,
              std::span<const RawParams> raw) {
  PACKSTONE_ASSERT(row >= 0 && row < shape.rows);
  PACKSTONE_ASSERT(static_cast<std::int64_t>(codes.size()) == shape.cols);
  const MutablePlanes bytes{planes, shape, params};
  const FormatOps& ops = format_ops(id);
  const bool good = ops.write_codes(bytes, row, codes.data());
  ops.write_params(bytes, row, raw);
  return good;
}

void decode_params(FormatId id, const FormatParams& params, std::span<const RawParams> raw,
                   std::span<GroupValues> groups) {
  PACKSTONE_ASSERT(raw.size() == groups.size());
  format_ops(id).values(params, raw, groups);
}

std::int64_t encode_params(FormatId id, const FormatParams& params,
                           std::span<const GroupValues> groups, std::span<RawParams> raw) {
  PACKSTONE_ASSERT(raw.size() == groups.size());
  return format_ops(id).encode(params, groups, raw);
}

}  // namespace packstone
