// The slow and sure path, derived for every format from its places: codes, parameters, values.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/format/packed_weight.h"

namespace packstone {

// decode_row(weight, row, out) writes the values of one row.
// Shapes: out [cols]. Exact: rounded, as the format's header says (scheme.h, decode_value).
// Errors: none; preconditions asserted. Cost: tens of nanoseconds a weight. Threads: safe.
void decode_row(const PackedWeight& weight, std::int64_t row, std::span<float> out);

// unpack_row(weight, row, codes, groups): codes [cols], group values [ceil(cols / group_cols)].
// Exact: bitwise. For a float format the group values are the identity.
void unpack_row(const PackedWeight& weight, std::int64_t row, std::span<std::uint32_t> codes,
                std::span<GroupValues> groups);

// raw_params_row(weight, row, raw): the stored patterns of every group's parameters.
void raw_params_row(const PackedWeight& weight, std::int64_t row, std::span<RawParams> raw);

// pack_row writes the codes and raw parameters of one row into planes (mutable, zeroed before the
// first row). The inverse of unpack_row + raw_params_row. Parameters shared by several groups are
// taken from the first of them.
void pack_row(FormatId id, Shape shape, const FormatParams& params, unsigned char* const* planes,
              std::int64_t row, std::span<const std::uint32_t> codes, std::span<const RawParams> raw);

}  // namespace packstone
