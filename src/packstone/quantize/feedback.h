// Quantization with error feedback (GPTQ and its kin) onto the grid of any format.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "packstone/base/matrix_view.h"
#include "packstone/base/thread_pool.h"
#include "packstone/quantize/quantizer.h"

namespace packstone {

enum class ColumnOrder {
  kNatural,
  // Columns by descending diagonal of the Hessian inside their unit, units by the largest of their
  // diagonals; the groups stay where they are, so that nothing has to be stored.
  kGroupAware,
};

struct FeedbackOptions {
  ColumnOrder order = ColumnOrder::kGroupAware;
  // Parameters of all units from the weights as they are, before any feedback.
  bool static_groups = false;
  // FOEM: the share of a column's drift from its original value that is taken back, in [0, 1].
  float beta = 0;
  // GPTAQ: the share of the inputs' drift that is made good.
  float alpha = 0.25f;
};

// quantize_with_feedback(weight, hessian, target, params, options, product, pool, subject): column
// by column, the error of a column is spread over those that follow, weighted by the inverse
// Hessian; a unit's parameters are chosen when its first column is reached, for the values with the
// feedback so far, weighted by 1 / U[k, k]^2, the cost of an error that nothing can take back.
// With `drift` (GPTAQ) every column also passes on what its inputs have lost against those of the
// unquantized model: column k adds its value, before rounding, times P[k, j] to column j > k,
// P = gptaq_correction(drift, U, alpha).
// Shapes: weight [rows, cols], finite; hessian [cols, cols] (SecondMoment); drift [cols, cols]
// (CrossMoment) or empty.
// Exact: measured; deterministic: same bits for any thread count if `product` keeps that promise.
// Errors: those of Grid::make and inverse_factor; kInvalidInput for shapes and options;
//         kNotRepresentable for a weight that is not finite, naming row and column; kExhausted.
// Cost: 3 rows * cols^2 + 2/3 cols^3 multiply-adds; a slice of at most 64 MiB of the weight three
// times, the Hessian three times in float32 and, while it is factored, twice in float64.
// Source: Frantar et al. 2023 (arXiv 2210.17323); the order from Zheng et al. (FOEM) where beta is
// not zero; GPTAQ from Li et al. 2025 (arXiv 2504.02692).
struct FeedbackResult {
  PackedWeight weight;
  QuantizeReport report;
  double proxy_error = 0;  // tr(E H E^T) / tr(W H W^T), with the damped Hessian
  double lambda = 0;       // damping that was added
  double loss = 0;         // sum of e^2 / 2, e the error of a value by the factor's diagonal
};
struct FeedbackInput {
  MatrixView weight;
  std::span<const float> hessian;
  double damping = 0.01;
  std::span<const float> drift = {};
};
Result<FeedbackResult> quantize_with_feedback(const FeedbackInput& input, FormatId target,
                                              const FormatParams& params,
                                              const FeedbackOptions& options,
                                              const MatrixProduct& product, ThreadPool& pool,
                                              std::string_view subject);

// gptaq_correction(drift, upper, alpha, n, product): P = alpha striu(D U^T) U, strictly upper
// triangular; D[i, j] = sum over rows of (x~ - x)[i] x[j] with x~ the unquantized model's inputs.
// Shapes: drift, upper [n, n], P [n, n]. Exact: as `product`. Errors: kInvalidInput for shapes and
// an alpha that is not finite; kExhausted. Cost: 2 n^3 multiply-adds, 3 n^2 floats.
// Source: Li et al. 2025 (arXiv 2504.02692), equation of the parallel form.
Result<std::vector<float>> gptaq_correction(std::span<const float> drift,
                                            std::span<const float> upper, float alpha,
                                            std::int64_t n, const MatrixProduct& product,
                                            std::string_view subject);

// round_to_grid(weight, importance, target, params, pool, subject): without feedback: every unit's
// parameters by the search of Grid::fit, every value to its nearest code.
// Shapes: weight [rows, cols], finite; importance [cols], of an error in a column (empty: all one).
// Exact: measured; same bits for any thread count. Errors: as above. Cost: one slice of the weight.
Result<Quantized> round_to_grid(const MatrixView& weight, std::span<const float> importance,
                                FormatId target, const FormatParams& params, ThreadPool& pool,
                                std::string_view subject);

}  // namespace packstone
