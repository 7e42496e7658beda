#include "packstone/quantize/second_moment.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "packstone/base/check.h"
#include "packstone/base/limits.h"

namespace packstone {
namespace {

constexpr std::int64_t kPieceRows = 512;
constexpr std::int64_t kBlock = 128;

bool finite(const float* x, std::int64_t cols) {
  return std::all_of(x, x + cols, [](float value) { return std::isfinite(value); });
}

}  // namespace

Result<SecondMoment> SecondMoment::make(std::int64_t cols, std::string_view subject) {
  constexpr std::string_view kWhere = "quantize.second_moment";
  if (cols < 1 || cols > limits::kMatrixElementsMax / cols)
    return fail(ErrorCode::kInvalidInput, kWhere, subject, fmt::format("{} channels", cols),
                "at least one, and a square of them within the limit of matrices");
  SecondMoment moment(cols);
  try {
    moment.matrix_.resize(static_cast<std::size_t>(cols * cols));
    moment.piece_.resize(static_cast<std::size_t>(cols * kPieceRows));
    moment.turned_.resize(moment.piece_.size());
    moment.product_.resize(static_cast<std::size_t>(kBlock * cols));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                fmt::format("{} MiB", (cols * (cols + 2 * kPieceRows + kBlock)) >> 18));
  }
  return moment;
}

void SecondMoment::add(const MatrixView& x, const MatrixProduct& product) {
  PACKSTONE_ASSERT(x.cols == cols_);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float* row = x.row(i);
    if (!finite(row, cols_)) {
      ++dropped_;
      continue;
    }
    std::copy_n(row, cols_, piece_.data() + filled_ * cols_);
    ++rows_;
    if (++filled_ == kPieceRows) add_piece(product);
  }
}

// The lower triangle, in blocks of rows.
void SecondMoment::add_piece(const MatrixProduct& product) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t i = 0; i < filled_; i += kTile)
    for (std::int64_t c = 0; c < cols_; ++c)
      for (std::int64_t k = i; k < std::min(i + kTile, filled_); ++k)
        turned_[static_cast<std::size_t>(c * filled_ + k)] =
            piece_[static_cast<std::size_t>(k * cols_ + c)];
  const MatrixView piece{turned_.data(), cols_, filled_, filled_};
  for (std::int64_t first = 0; first < cols_; first += kBlock) {
    const std::int64_t count = std::min(kBlock, cols_ - first), width = first + count;
    product(piece.part(first, count, 0, filled_), piece.part(0, width, 0, filled_), product_.data(),
            width);
    for (std::int64_t i = 0; i < count; ++i) {
      float* row = matrix_.data() + (first + i) * cols_;
      const float* sums = product_.data() + i * width;
      for (std::int64_t j = 0; j <= first + i; ++j) row[j] += sums[j];
    }
  }
  filled_ = 0;
}

void SecondMoment::finish(const MatrixProduct& product) {
  if (filled_ > 0) add_piece(product);
  for (std::int64_t i = 0; i < cols_; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      matrix_[static_cast<std::size_t>(j * cols_ + i)] =
          matrix_[static_cast<std::size_t>(i * cols_ + j)];
}

Result<CrossMoment> CrossMoment::make(std::int64_t cols, std::string_view subject) {
  constexpr std::string_view kWhere = "quantize.cross_moment";
  if (cols < 1 || cols > limits::kMatrixElementsMax / cols)
    return fail(ErrorCode::kInvalidInput, kWhere, subject, fmt::format("{} channels", cols),
                "at least one, and a square of them within the limit of matrices");
  CrossMoment moment(cols);
  try {
    moment.matrix_.resize(static_cast<std::size_t>(cols * cols));
    moment.drift_.resize(static_cast<std::size_t>(cols * kPieceRows));
    moment.x_.resize(moment.drift_.size());
    moment.product_.resize(static_cast<std::size_t>(kBlock * cols));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                fmt::format("{} MiB", (cols * (cols + 2 * kPieceRows + kBlock)) >> 18));
  }
  return moment;
}

void CrossMoment::add(const MatrixView& wanted, const MatrixView& x, const MatrixProduct& product) {
  PACKSTONE_ASSERT(x.cols == cols_ && wanted.cols == cols_ && wanted.rows == x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float *want = wanted.row(i), *have = x.row(i);
    if (!finite(want, cols_) || !finite(have, cols_)) continue;
    for (std::int64_t c = 0; c < cols_; ++c) {
      drift_[static_cast<std::size_t>(c * kPieceRows + filled_)] = want[c] - have[c];
      x_[static_cast<std::size_t>(c * kPieceRows + filled_)] = have[c];
    }
    if (++filled_ == kPieceRows) add_piece(product);
  }
}

void CrossMoment::add_piece(const MatrixProduct& product) {
  for (std::int64_t first = 0; first < cols_; first += kBlock) {
    const std::int64_t count = std::min(kBlock, cols_ - first);
    product({drift_.data() + first * kPieceRows, count, filled_, kPieceRows},
            {x_.data(), cols_, filled_, kPieceRows}, product_.data(), cols_);
    float* rows = matrix_.data() + first * cols_;
    for (std::int64_t i = 0; i < count * cols_; ++i)
      rows[i] += product_[static_cast<std::size_t>(i)];
  }
  filled_ = 0;
}

void CrossMoment::finish(const MatrixProduct& product) {
  if (filled_ > 0) add_piece(product);
}

}  // namespace packstone
