// The factor of a damped Hessian that error feedback runs on.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/base/thread_pool.h"

namespace packstone {

struct Damping {
  double fraction = 0.01;  // of the mean of the diagonal, in (0, 1)
  // Further tries after a factorization that fails: the fraction grows by `step` below 1 (0: no
  // further try).
  double step = 0;
};

struct Factor {
  std::vector<float> upper;  // [n, n]: U with (H + lambda I)^-1 = U^T U; U[k, k] > 0, row by row
  double lambda = 0;         // what was added to the diagonal
  int tries = 1;
};

// inverse_factor(hessian, n, damping, pool, subject): lambda = max(fraction * mean(diag),
// 1e-6 * max(diag), 1e-12); the upper Cholesky factor of the inverse of H + lambda I.
// Shapes: hessian [n, n], symmetric; only its lower triangle is read.
// Exact: float64 inside, rounded once at the end; same bits for any thread count.
// Errors: kInvalidInput for a fraction outside (0, 1) or a shape; kNotRepresentable for a Hessian
//         that is not finite or not positive definite after all tries; kExhausted.
// Cost: 2 n^2 doubles, 2/3 n^3 multiply-adds. Threads: the pool given.
// Source: with H = R R^T, R upper triangular (Cholesky from the last column), U = R^-1; equal to
// the factor of the inverse that GPTQ (Frantar et al. 2023, arXiv 2210.17323) takes.
Result<Factor> inverse_factor(std::span<const float> hessian, std::int64_t n,
                              const Damping& damping, ThreadPool& pool, std::string_view subject);

}  // namespace packstone
