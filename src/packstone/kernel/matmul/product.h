// The product of two float32 matrices in memory.
#pragma once

#include "packstone/base/matrix_view.h"
#include "packstone/base/thread_pool.h"

namespace packstone {

// float_product(a, b, out, out_stride, pool): out[i, j] = sum_c a[i, c] b[j, c].
// Shapes: a [m, k], b [n, k], out [m, n] with row stride out_stride.
// Exact: bounded, gamma_k with u = 2^-24; the order of Linear::run, so that the bits depend neither
// on m and n, nor on the instruction set.
// Errors: none. Cost: no memory where b's rows follow each other, else 512 KiB a thread.
// Threads: the pool given.
// Napkin: as panel_dot: 75 to 85 % of the fused multiply-adds of a core; b's rows are read from
// memory once, those of a once per 64 rows of b.
void float_product(const MatrixView& a, const MatrixView& b, float* out, std::int64_t out_stride,
                   ThreadPool& pool);

}  // namespace packstone
