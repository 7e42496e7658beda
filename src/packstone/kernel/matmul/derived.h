// Decode of a row for formats without a reader.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/format/packed_weight.h"

namespace packstone {

// derived_decode_row(weight, row, out): the values of one row from the format's places.
// Shapes: out [cols]. Exact: as the format's header says. Errors: none. Cost: tens of ns a weight.
void derived_decode_row(const PackedWeight& weight, std::int64_t row, std::span<float> out);

}  // namespace packstone
