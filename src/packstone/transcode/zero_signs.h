// Counts the codes of a block of rows that stand for a zero whose sign changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packstone/transcode/plain_move.h"

namespace packstone {

// The scratch of one worker.
class ZeroSigns {
 public:
  // `groups`: of a row. The source's codes must fit bytes.
  ZeroSigns(const PackedWeight& source, std::size_t groups);

  // Sets the sign codes of row `index` of the next block; rows that are not set have none.
  void set(std::size_t index, std::span<const SignCode> codes);

  struct Count {
    std::int64_t zeros = 0;
    std::int64_t row = -1, col = -1;  // the first, its row in the block
  };
  // count(rows) counts in these source rows, at most kPackUnitRows, and forgets the sign codes.
  // Exact. Errors: none.
  Count count(std::span<const std::int64_t> rows);

 private:
  void read(std::span<const std::int64_t> rows, std::int64_t col, std::int64_t cols);
  std::int64_t count_row(std::size_t row, std::int64_t col, std::int64_t cols) const;
  std::int64_t first_in_row(std::size_t row, std::int64_t col, std::int64_t cols) const;

  const PackedWeight& source_;
  std::size_t groups_;
  std::int64_t group_cols_, block_cols_;
  bool any_ = false;
  std::vector<SignCode> sign_codes_;  // [kPackUnitRows, groups]
  std::vector<std::uint8_t> codes_;
};

}  // namespace packstone
