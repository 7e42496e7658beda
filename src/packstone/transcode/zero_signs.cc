#include "packstone/transcode/zero_signs.h"

#include <algorithm>

namespace packstone {
namespace {

// Columns at a time: a block of 64 rows stays in the first cache.
constexpr std::int64_t kBlockCols = 512;

std::int64_t count_equal(std::span<const std::uint8_t> codes, std::uint8_t code) {
  constexpr std::size_t kLanes = 32;
  std::int64_t count = 0;
  while (codes.size() >= kLanes) {
    std::uint8_t equal = 0;
    for (std::size_t i = 0; i < kLanes; ++i) equal += codes[i] == code ? 1 : 0;
    count += equal;
    codes = codes.subspan(kLanes);
  }
  return count + std::ranges::count(codes, code);
}

bool are_run(std::span<const std::int64_t> rows) {
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i] != rows[i - 1] + 1) return false;
  return true;
}

}  // namespace

ZeroSigns::ZeroSigns(const PackedWeight& source, std::size_t groups)
    : source_(source),
      groups_(groups),
      group_cols_(packstone::group_cols(source.id(), source.params())),
      block_cols_(kBlockCols % format_ops(source.id()).tile_cols == 0
                      ? std::min(kBlockCols, source.shape().cols)
                      : source.shape().cols),
      sign_codes_(static_cast<std::size_t>(kPackUnitRows) * groups, kNoSignCode),
      codes_(static_cast<std::size_t>(kPackUnitRows * block_cols_)) {}

std::span<SignCode> ZeroSigns::row(std::size_t index) {
  any_ = true;
  return std::span(sign_codes_).subspan(index * groups_, groups_);
}

void ZeroSigns::read(std::span<const std::int64_t> rows, std::int64_t col, std::int64_t cols) {
  const auto planes = source_.plane_pointers();
  const ConstPlanes bytes{planes.data(), source_.shape(), source_.params()};
  const auto read_rows = format_ops(source_.id()).read_code_bytes;
  const auto count = static_cast<std::int64_t>(rows.size());
  if (are_run(rows)) return read_rows(bytes, {rows[0], count, col, cols, cols}, codes_.data());
  for (std::int64_t i = 0; i < count; ++i)
    read_rows(bytes, {rows[static_cast<std::size_t>(i)], 1, col, cols, cols},
              codes_.data() + i * cols);
}

void ZeroSigns::count_row(std::size_t row, std::int64_t col, std::int64_t cols,
                          Count& count) const {
  const auto codes = std::span(codes_).subspan(row * static_cast<std::size_t>(cols),
                                               static_cast<std::size_t>(cols));
  const SignCode* sign_codes = sign_codes_.data() + row * groups_;
  for (std::int64_t at = 0; at < cols;) {
    const std::int64_t group = (col + at) / group_cols_;
    const std::int64_t end = std::min(cols, (group + 1) * group_cols_ - col);
    const SignCode sign_code = sign_codes[group];
    if (sign_code != kNoSignCode) {
      const auto code = static_cast<std::uint8_t>(sign_code);
      const auto here =
          codes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at));
      const std::int64_t zeros = count_equal(here, code);
      const auto in_block = static_cast<std::int64_t>(row);
      // Blocks of columns come one after another, each with all rows.
      if (zeros > 0 && (count.zeros == 0 || in_block < count.row)) {
        count.row = in_block;
        count.col = col + at + (std::ranges::find(here, code) - here.begin());
      }
      count.zeros += zeros;
    }
    at = end;
  }
}

ZeroSigns::Count ZeroSigns::count(std::span<const std::int64_t> rows) {
  Count count;
  if (!any_) return count;
  const std::int64_t all = source_.shape().cols;
  for (std::int64_t col = 0; col < all; col += block_cols_) {
    const std::int64_t cols = std::min(block_cols_, all - col);
    read(rows, col, cols);
    for (std::size_t row = 0; row < rows.size(); ++row) count_row(row, col, cols, count);
  }
  std::ranges::fill(sign_codes_, kNoSignCode);
  any_ = false;
  return count;
}

}  // namespace packstone
