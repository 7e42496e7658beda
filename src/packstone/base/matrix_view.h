// A float32 matrix in somebody's memory, row by row.
#pragma once

#include <cstdint>
#include <functional>

namespace packstone {

struct MatrixView {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // floats from one row to the next

  const float* row(std::int64_t index) const { return data + index * stride; }
  // Rows [row, row + count) of columns [col, col + width).
  MatrixView part(std::int64_t first, std::int64_t count, std::int64_t col,
                  std::int64_t width) const {
    return {data + first * stride + col, count, width, stride};
  }
};

// out[i * out_stride + j] = sum_c a[i, c] b[j, c]. Shapes: a [m, k], b [n, k]. Quantizers take the
// product as an argument, so that they know no kernels. An implementation must give the same bits
// for any thread count.
using MatrixProduct = std::function<void(const MatrixView& a, const MatrixView& b, float* out,
                                         std::int64_t out_stride)>;

}  // namespace packstone
