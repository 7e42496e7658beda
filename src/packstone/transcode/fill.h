// Makes the rows of a target weight as a plan decided.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/transcode/target_params.h"
#include "packstone/transcode/transcode.h"

namespace packstone {

// fill(source, map, row_order, way, target, pool) writes the planes of `target`, whose format and
// parameters are those of a plan; target row i is source row row_order[i] (identity when empty).
// Returns the first source row that could not be made as planned, or -1: a group that cannot be
// mapped or stored, codes without a block, or a value that another row needs in the same place.
// Exact: as the plan's verdict. Errors: std::bad_alloc (one row per thread). Threads: the pool
// given; result independent of its size.
std::int64_t fill(const PackedWeight& source, SchemeMap map,
                  std::span<const std::int32_t> row_order, MoveWay way, OwnedWeight& target,
                  ThreadPool& pool);

// copy_rows(source, row_order, way, target, pool): the same for a target of the source's own format
// and parameters, code by code and pattern by pattern.
std::int64_t copy_rows(const PackedWeight& source, std::span<const std::int32_t> row_order,
                       MoveWay way, OwnedWeight& target, ThreadPool& pool);

}  // namespace packstone
