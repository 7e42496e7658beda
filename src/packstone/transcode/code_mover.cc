#include "packstone/transcode/code_mover.h"

#include <algorithm>

#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

// Columns at a time, so that a block of 64 rows stays in the first cache.
constexpr std::int64_t kBlockCols = 512;
// Beyond a row of a block, so that the rows' lines are spread over all sets of a cache.
constexpr std::int64_t kRowGap = 64;

std::int64_t block_cols(FormatId source, FormatId target, std::int64_t cols) {
  const bool whole = kBlockCols % format_ops(source).tile_cols == 0 &&
                     kBlockCols % format_ops(target).tile_cols == 0;
  return whole ? std::min(kBlockCols, cols) : cols;
}

// The stored group numbers of the columns with act-order; else nothing.
std::vector<std::int32_t> stored_groups(const PackedWeight& weight) {
  std::vector<std::int32_t> groups;
  const int plane = weight.format().index_plane;
  if (plane < 0 || !weight.params().act_order) return groups;
  const unsigned char* bytes = weight.plane_pointers()[static_cast<std::size_t>(plane)];
  for (std::int64_t col = 0; col < weight.shape().cols; ++col)
    groups.push_back(
        static_cast<std::int32_t>(read_bits(bytes, 32 * static_cast<std::uint64_t>(col), 32)));
  return groups;
}

}  // namespace

bool block_movable(FormatId source, FormatId target) {
  return format_ops(source).read_code_bytes != nullptr &&
         format_ops(target).write_code_bytes != nullptr && !format_info(target).block_codes;
}

CodeMover::CodeMover(const PackedWeight& source, OwnedWeight& target,
                     std::span<const std::uint8_t> table, std::int64_t group_cols)
    : source_(source),
      target_(target),
      table_(table),
      group_cols_(std::max<std::int64_t>(group_cols, 1)),
      block_cols_(block_cols(source.id(), target.id, source.shape().cols)),
      groups_(static_cast<std::size_t>(ceil_div(source.shape().cols, group_cols_))),
      codes_(static_cast<std::size_t>(kPackUnitRows * (block_cols_ + kRowGap))),
      shifts_(static_cast<std::size_t>(kPackUnitRows) * groups_),
      stored_group_(stored_groups(source)) {}

void CodeMover::set_shifts(std::int64_t index, std::span<const std::int32_t> shifts) {
  if (!any_shift_) std::ranges::fill(shifts_, 0);
  any_shift_ = true;
  std::ranges::copy(shifts, shifts_.begin() + index * static_cast<std::int64_t>(groups_));
}

void CodeMover::move(std::int64_t begin, std::int64_t end, std::span<const std::int32_t> order) {
  const auto planes = target_.pointers();
  const MutablePlanes bytes{planes.data(), target_.shape, target_.params};
  const std::int64_t cols = target_.shape.cols;
  for (std::int64_t col = 0; col < cols; col += block_cols_) {
    const CodeBlock block{begin, end - begin, col, std::min(block_cols_, cols - col),
                          block_cols_ + kRowGap};
    read(block, order);
    change(block);
    format_ops(target_.id).write_code_bytes(bytes, block, codes_.data());
  }
  any_shift_ = false;
}

void CodeMover::read(const CodeBlock& block, std::span<const std::int32_t> order) {
  const auto planes = source_.plane_pointers();
  const ConstPlanes bytes{planes.data(), source_.shape(), source_.params()};
  const auto read_rows = format_ops(source_.id()).read_code_bytes;
  if (order.empty()) return read_rows(bytes, block, codes_.data());
  for (std::int64_t row = 0; row < block.rows; ++row) {
    CodeBlock one = block;
    one.row = order[static_cast<std::size_t>(block.row + row)];
    one.rows = 1;
    read_rows(bytes, one, codes_.data() + row * block.stride);
  }
}

void CodeMover::change(const CodeBlock& block) {
  if (table_.empty() && !any_shift_) return;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    std::uint8_t* codes = codes_.data() + row * block.stride;
    const std::int32_t* shifts = shifts_.data() + static_cast<std::size_t>(row) * groups_;
    if (!table_.empty())
      for (std::int64_t i = 0; i < block.cols; ++i) codes[i] = table_[codes[i]];
    if (!any_shift_) continue;
    if (!stored_group_.empty()) {
      for (std::int64_t i = 0; i < block.cols; ++i)
        codes[i] = static_cast<std::uint8_t>(
            codes[i] + shifts[stored_group_[static_cast<std::size_t>(block.col + i)]]);
      continue;
    }
    for (std::int64_t i = 0; i < block.cols;) {
      const std::int64_t group = (block.col + i) / group_cols_;
      const std::int64_t last = std::min(block.cols, (group + 1) * group_cols_ - block.col);
      const auto shift = static_cast<std::uint8_t>(shifts[group]);
      for (; i < last; ++i) codes[i] = static_cast<std::uint8_t>(codes[i] + shift);
    }
  }
}

}  // namespace packstone
