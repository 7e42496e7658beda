// The run-time parameters that a format can have: for suites and tables that go over all formats.
#pragma once

#include <vector>

#include "packstone/format/packed_weight.h"

namespace packstone {

// legal_variants(id, shape): parameters that are legal for the shape, each group size of the format
// with each metadata type it may have, with and without act-order, and where rows may share
// parameters 1, 2 and all rows. The plainest first: the smallest group, float16, no act-order.
// Errors: none; empty when no parameters fit the shape. Cost: a few hundred rule checks.
std::vector<FormatParams> legal_variants(FormatId id, Shape shape);

// sample_params(id): the plainest variant on a shape that every format takes, kSampleShape.
inline constexpr Shape kSampleShape{256, 1024};
FormatParams sample_params(FormatId id);

}  // namespace packstone
