// Dot products of float64 rows, the work of factorizations.
#pragma once

#include <cstdint>

namespace packstone {

// out[i * out_stride + j] -= sum_c a[i, c] b[j, c]; a [m, k], b [n, k] with their row strides.
// Lane l of 8 adds the columns l, l + 8, ..., product and sum rounded apart, then the lanes are
// added in the tree 4, 2, 1: one order for any shape and instruction set.
void subtract_product_f64(const double* a, std::int64_t m, std::int64_t a_stride, const double* b,
                          std::int64_t n, std::int64_t b_stride, std::int64_t k, double* out,
                          std::int64_t out_stride);

}  // namespace packstone
