// The slow and sure path, derived for every format from its places: codes, parameters, values.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/format/packed_weight.h"

namespace packstone {

// decode_row(weight, row, out) writes the values of one row.
// Shapes: out [cols]. Exact: rounded, as the format's header says (scheme.h, decode_value).
// Errors: none; preconditions asserted. Cost: about a nanosecond a weight. Threads: safe.
void decode_row(const PackedWeight& weight, std::int64_t row, std::span<float> out);

// decode_rows(weight, row, rows, out): decode_row of rows [row, row + rows), together, which is far
// cheaper where words or tiles hold several rows. Shapes: out [rows, cols]. Exact: decode_row's
// bits. Errors: none; preconditions asserted. Cost: no memory. Threads: safe.
void decode_rows(const PackedWeight& weight, std::int64_t row, std::int64_t rows,
                 std::span<float> out);

// unpack_row(weight, row, codes, groups): codes [cols], group values [ceil(cols / group_cols)].
// Codes are counted from 0 whatever the file stores (format.h, kCodeXor): of a linear format the
// value is scale * (code - center) + offset. With act_order the group of a column is the one that
// the format's plane of group numbers says.
// Exact: bitwise. For a float format the code is the pattern and the group values are the identity.
// Errors: none; preconditions asserted. Threads: safe.
void unpack_row(const PackedWeight& weight, std::int64_t row, std::span<std::uint32_t> codes,
                std::span<GroupValues> groups);

// group_values_row(weight, row, groups): the group values of unpack_row alone.
void group_values_row(const PackedWeight& weight, std::int64_t row, std::span<GroupValues> groups);

// raw_params_row(weight, row, raw): the stored patterns of every group's parameters.
// Shapes: raw [ceil(cols / group_cols)]. Exact: bitwise. Errors: none. Threads: safe.
void raw_params_row(const PackedWeight& weight, std::int64_t row, std::span<RawParams> raw);

// pack_row writes the codes and raw parameters of one row into planes. The inverse of unpack_row +
// raw_params_row. Parameters shared by several groups or rows are taken from the first of them.
// Bits that are padding stay as they are. Shapes: codes [cols], raw [ceil(cols / group_cols)]; bits
// of a code above the format's are ignored. Exact: bitwise. Errors: false when the format has no
// block with these codes (block codes only). Threads: rows of different units of
// 64 (kPackUnitRows) may be packed at the same time: no format lets such rows share bytes.
bool pack_row(FormatId id, Shape shape, const FormatParams& params, unsigned char* const* planes,
              std::int64_t row, std::span<const std::uint32_t> codes,
              std::span<const RawParams> raw);

// decode_params(id, params, raw, groups): what stored parameters mean, group by group.
// Shapes: equal sizes. Exact: as the format's values(). Errors: none. Threads: safe.
void decode_params(FormatId id, const FormatParams& params, std::span<const RawParams> raw,
                   std::span<GroupValues> groups);

// encode_params(id, params, groups, raw) is the inverse: stored parameters with exactly these
// values. Returns the first group that the format cannot store, or -1. Exact: bitwise. Threads:
// safe.
std::int64_t encode_params(FormatId id, const FormatParams& params,
                           std::span<const GroupValues> groups, std::span<RawParams> raw);

}  // namespace packstone
