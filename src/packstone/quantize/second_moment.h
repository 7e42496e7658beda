// The second moment of a linear layer's inputs, the Hessian of every method with error feedback.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "packstone/base/matrix_view.h"
#include "packstone/base/result.h"

namespace packstone {

// H = sum over rows x of x^T x, float32. Rows are summed in pieces of 512, in the order they come,
// so that the bits do not depend on threads; how calls cut the rows into batches does not matter
// either. Rows with a value that is not finite are left out and counted.
// Exact: bounded; normalized error ||H - H_exact|| / ||H_exact|| below 1e-6 for 10^6 rows (D13).
class SecondMoment {
 public:
  // For inputs of `cols` channels. Errors: kInvalidInput (cols below 1), kExhausted. Cost: cols^2 +
  // 1152 cols floats.
  static Result<SecondMoment> make(std::int64_t cols, std::string_view subject);

  // Adds the rows of x. Shapes: x [rows, cols]. Errors: none. Cost: rows * cols^2 fused
  // multiply-adds in `product`.
  void add(const MatrixView& x, const MatrixProduct& product);
  // Adds what is left of an unfinished piece; the matrix is then complete until the next add.
  void finish(const MatrixProduct& product);

  std::int64_t cols() const { return cols_; }
  std::int64_t rows() const { return rows_; }        // that were added
  std::int64_t dropped() const { return dropped_; }  // that were not finite
  // [cols, cols], symmetric; complete after finish.
  std::span<const float> matrix() const { return matrix_; }
  std::span<float> matrix() { return matrix_; }

 private:
  explicit SecondMoment(std::int64_t cols) : cols_(cols) {}
  void add_piece(const MatrixProduct& product);

  std::int64_t cols_ = 0, rows_ = 0, dropped_ = 0;
  std::int64_t filled_ = 0;  // rows of the piece
  std::vector<float> matrix_;
  std::vector<float> piece_;    // [512, cols]
  std::vector<float> turned_;   // [cols, filled]
  std::vector<float> product_;  // [128, cols]
};

// The drift of a layer's inputs: D = sum over rows of (x~ - x)^T x, float32, x~ the inputs of the
// unquantized model and x those that the quantized layers before make of the same tokens (GPTAQ).
// Rows are summed in pieces of 512, as above; rows with a value that is not finite are left out.
class CrossMoment {
 public:
  // Errors: kInvalidInput (cols below 1), kExhausted. Cost: cols^2 + 2176 cols floats.
  static Result<CrossMoment> make(std::int64_t cols, std::string_view subject);
  // Shapes: wanted, x [rows, cols]. Errors: none.
  void add(const MatrixView& wanted, const MatrixView& x, const MatrixProduct& product);
  void finish(const MatrixProduct& product);
  // [cols, cols]; row: the channel of the difference. Complete after finish.
  std::span<const float> matrix() const { return matrix_; }

 private:
  explicit CrossMoment(std::int64_t cols) : cols_(cols) {}
  void add_piece(const MatrixProduct& product);

  std::int64_t cols_ = 0, filled_ = 0;
  std::vector<float> matrix_;
  std::vector<float> drift_, x_;  // [cols, 512], channel by channel
  std::vector<float> product_;    // [128, cols]
};

}  // namespace packstone
