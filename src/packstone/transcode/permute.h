// Columns of a weight with act-order put in the order of their groups, so that layouts without
// group numbers can take it. Whoever makes the inputs of those columns must follow.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "packstone/base/thread_pool.h"
#include "packstone/format/packed_weight.h"

namespace packstone {

// sorted_columns(weight, subject): the columns by group number, those of one group as they stand (a
// stable sort): column i of the sorted weight is column result[i]. Empty without act-order.
// Errors: kNotRepresentable naming `subject` and the group, when a group has more or fewer columns
//         than a layout without group numbers gives it; kExhausted.
// Cost: the plane of group numbers is read twice; 4 bytes a column. Threads: safe.
Result<std::vector<std::int32_t>> sorted_columns(const PackedWeight& weight,
                                                 std::string_view subject);

// permute_columns(source, order, pool) is the weight of the same format without act-order whose
// column i is source column order[i]. Codes move; the parameters of every group stay.
// Shapes: order [cols], each column once, every column to its own group's place: what
//         sorted_columns gives.
// Exact: bitwise: value (row, i) is the source's value (row, order[i]).
// Errors: kInvalidInput for another order or a format without group numbers; kExhausted.
// Cost: one copy of the weight, and 32 bytes a column for each thread. Threads: the pool given;
// result independent of its size.
Result<PackedWeight> permute_columns(const PackedWeight& source,
                                     std::span<const std::int32_t> order, ThreadPool& pool);

}  // namespace packstone
