#include "packstone/transcode/zero_signs.h"

#include <algorithm>

#include "packstone/transcode/byte_vectors.h"

namespace packstone {
namespace {

// Columns at a time: a block of 64 rows stays in the first cache.
constexpr std::int64_t kBlockCols = 512;
// Beyond a row of a block, so that the rows' lines are spread over all sets of a cache.
constexpr std::int64_t kRowGap = 64;

// Counts equal codes of spans, each span with a code of its own. A lane holds up to 255.
class EqualCounter {
 public:
  void add(std::span<const std::uint8_t> codes, SignCode code) {
    const Bytes16 want = all_bytes(static_cast<std::uint8_t>(code));
    const Bytes16 valid = all_bytes(code == kNoSignCode ? 0 : 1);
    std::size_t i = 0;
    for (; i + 16 <= codes.size(); i += 16) {
      if (++added_ == 256) flush();
      lanes_ += (Bytes16)(load16(codes.data() + i) == want) & valid;
    }
    for (; i < codes.size(); ++i) count_ += codes[i] == code;
  }
  std::int64_t count() {
    flush();
    return count_;
  }

 private:
  void flush() {
    std::uint8_t lanes[16];
    store16(lanes, lanes_);
    for (const std::uint8_t lane : lanes) count_ += lane;
    lanes_ = Bytes16{};
    added_ = 1;
  }
  Bytes16 lanes_{};
  int added_ = 0;
  std::int64_t count_ = 0;
};

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
      codes_(static_cast<std::size_t>(kPackUnitRows * (block_cols_ + kRowGap))) {}

void ZeroSigns::set(std::size_t index, std::span<const SignCode> codes) {
  any_ = true;
  std::ranges::copy(codes, sign_codes_.begin() + static_cast<std::ptrdiff_t>(index * groups_));
}

void ZeroSigns::read(std::span<const std::int64_t> rows, std::int64_t col, std::int64_t cols) {
  const auto planes = source_.plane_pointers();
  const ConstPlanes bytes{planes.data(), source_.shape(), source_.params()};
  const auto read_rows = format_ops(source_.id()).read_code_bytes;
  const auto count = static_cast<std::int64_t>(rows.size());
  if (are_run(rows))
    return read_rows(bytes, {rows[0], count, col, cols, cols + kRowGap}, codes_.data());
  for (std::int64_t i = 0; i < count; ++i)
    read_rows(bytes, {rows[static_cast<std::size_t>(i)], 1, col, cols, cols + kRowGap},
              codes_.data() + i * (cols + kRowGap));
}

std::int64_t ZeroSigns::count_row(std::size_t row, std::int64_t col, std::int64_t cols) const {
  const std::uint8_t* codes = codes_.data() + row * static_cast<std::size_t>(cols + kRowGap);
  const SignCode* sign_code = sign_codes_.data() + row * groups_ + col / group_cols_;
  EqualCounter counter;
  std::int64_t next = (col / group_cols_ + 1) * group_cols_ - col;
  for (std::int64_t at = 0; at < cols; ++sign_code, next += group_cols_) {
    const std::int64_t end = std::min(cols, next);
    counter.add({codes + at, static_cast<std::size_t>(end - at)}, *sign_code);
    at = end;
  }
  return counter.count();
}

// Of a row of the block that has one.
std::int64_t ZeroSigns::first_in_row(std::size_t row, std::int64_t col, std::int64_t cols) const {
  const std::uint8_t* codes = codes_.data() + row * static_cast<std::size_t>(cols + kRowGap);
  for (std::int64_t at = 0; at < cols; ++at)
    if (sign_codes_[row * groups_ + static_cast<std::size_t>((col + at) / group_cols_)] ==
        static_cast<SignCode>(codes[at]))
      return col + at;
  return col;
}

ZeroSigns::Count ZeroSigns::count(std::span<const std::int64_t> rows) {
  Count count;
  if (!any_) return count;
  const std::int64_t all = source_.shape().cols;
  for (std::int64_t col = 0; col < all; col += block_cols_) {
    const std::int64_t cols = std::min(block_cols_, all - col);
    read(rows, col, cols);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::int64_t zeros = count_row(row, col, cols);
      // Blocks of columns come one after another, each with all rows.
      if (zeros > 0 && (count.zeros == 0 || static_cast<std::int64_t>(row) < count.row)) {
        count.row = static_cast<std::int64_t>(row);
        count.col = first_in_row(row, col, cols);
      }
      count.zeros += zeros;
    }
  }
  std::ranges::fill(sign_codes_, kNoSignCode);
  any_ = false;
  return count;
}

}  // namespace packstone
