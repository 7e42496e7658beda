// Moves the codes of blocks of rows from one weight to another as bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/transcode.h"

namespace packstone {

// The scratch of one worker. Both formats must be block_movable.
class CodeMover {
 public:
  // `table`: as RowMap::code_table. `group_cols`: columns that share a shift.
  CodeMover(const PackedWeight& source, OwnedWeight& target, std::span<const std::uint8_t> table,
            std::int64_t group_cols);

  // Notes by how much row `index` of the next block moves its codes, group by group.
  void set_shifts(std::int64_t index, std::span<const std::int32_t> shifts);

  // move(begin, end, order) makes the codes of target rows [begin, end), at most kPackUnitRows,
  // from the source's rows order[begin .. end) (the same rows when empty), and forgets the shifts.
  // Exact: bitwise. Errors: none: every code has a place. Threads: as pack_row.
  void move(std::int64_t begin, std::int64_t end, std::span<const std::int32_t> order);

 private:
  void read(const CodeBlock& block, std::span<const std::int32_t> order);
  void change(const CodeBlock& block);

  const PackedWeight& source_;
  OwnedWeight& target_;
  std::span<const std::uint8_t> table_;
  std::int64_t group_cols_, block_cols_;
  std::size_t groups_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::int32_t> shifts_;        // [kPackUnitRows, groups]
  std::vector<std::int32_t> stored_group_;  // with act-order: of every column
  bool any_shift_ = false;
};

// Whether every code of the source format is a byte and has a place in the target format.
bool block_movable(FormatId source, FormatId target);

}  // namespace packstone
