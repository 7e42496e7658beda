// Products summed at float64, straight from packed bytes.
#pragma once

#include <cstdint>

#include "packstone/base/thread_pool.h"
#include "packstone/format/packed_weight.h"

namespace packstone {

// dot_f64(a, b, n): sum of a[i] * b[i], each product and each sum rounded to binary64. Lane j of 16
// adds i = j, j + 16, ... in order, then the lanes are added in the tree 8, 4, 2, 1: one order for
// any thread count and vector width.
double dot_f64(const float* a, const double* b, std::int64_t n);

// multiply_f64: y[i, r] = sum_c x[i, c] w[first + r, c], w at float32 as its format defines.
// Shapes: x [m, cols] with row stride x_stride; y [m, count] with row stride y_stride.
// Exact: bounded, gamma_k with u = 2^-53. Cost: one decoded row per thread. Errors: std::bad_alloc.
void multiply_f64(const PackedWeight& weight, std::int64_t first, std::int64_t count,
                  const double* x, std::int64_t m, std::int64_t x_stride, double* y,
                  std::int64_t y_stride, ThreadPool& pool);

}  // namespace packstone
