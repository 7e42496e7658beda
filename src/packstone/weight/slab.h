// What lies on one device of a weight: a stack of equal packed matrices, and how parts of it are
// gathered without decoding a value.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "packstone/format/packed_weight.h"

namespace packstone {

// `count` matrices of [rows, cols], `per` of them below each other in each packed weight: all of
// them where the format's rows can be stacked, else one. `skip` columns at the start, and all after
// skip + used, only fill up a block and take no part.
struct Slab {
  std::vector<PackedWeight> packed;
  std::int64_t count = 0;
  std::int64_t per = 1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t skip = 0;
  std::int64_t used = 0;

  // The packed weight of matrix `index`, and its first row there.
  const PackedWeight& weight_of(std::int64_t index) const {
    return packed[static_cast<std::size_t>(index / per)];
  }
  std::int64_t first_row(std::int64_t index) const { return index % per * rows; }
};

// One row to gather; no source: a row of zero bytes.
struct RowPick {
  const PackedWeight* source = nullptr;
  std::int64_t row = 0;
};

struct ColumnWindow {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Whether rows of the weight lie one after the other in every plane, and the columns of a row too,
// so that rows can be copied and stacked as bytes.
bool rows_are_bytes(const PackedWeight& weight);

// gather_rows(like, rows, pick, window) makes the weight of `rows` picked rows and the window's
// columns, in the format and parameters of `like`; all sources have them too, and its cols.
// Exact: bitwise: codes and stored parameters are copied. No value is decoded; only picked rows are
// read.
// Errors: kInvalidInput where the layout has no such shape; kNotRepresentable where picked rows
// would have to share a parameter that differs, or a window cuts a group; kExhausted.
Result<PackedWeight> gather_rows(const PackedWeight& like, std::int64_t rows,
                                 const std::function<RowPick(std::int64_t)>& pick,
                                 ColumnWindow window, std::string_view where);

}  // namespace packstone
