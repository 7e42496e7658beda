// The search of AWQ: a scale for every input channel of the matrices that share an input, so that
// rounding hurts less the channels that carry most.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "packstone/base/matrix_view.h"
#include "packstone/quantize/quantizer.h"

namespace packstone {

// Matrices that share their inputs, what is known of these inputs, and what the matrices become.
struct AwqGroup {
  std::vector<MatrixView> weights;  // each [rows, cols]
  std::span<const float> moment;    // [cols, cols]: sum of x^T x (SecondMoment)
  std::span<const float> mean_abs;  // [cols]: mean of |x|
  // [cols]: which of `scales` scales a column has; empty: column c has scale c. The heads of
  // grouped queries read the same values, and so share their scales.
  std::span<const std::int32_t> shared = {};
  std::int64_t scales = 0;
  FormatId target{};
  FormatParams params;
};

struct AwqScales {
  std::vector<float> scales;  // positive and finite; all one if nothing is better
  double loss = 0;            // sum over the matrices of tr(E H E^T) with these scales
  double unscaled_loss = 0;   // with all scales one
};

// search_awq_scales(group, product, pool, subject): of s = x^r and s = x^r / (w^(1-r) + 1e-4), for
// r = 0, 1/20, .. 19/20, the scales whose Q(W diag(s)) diag(1/s) changes the outputs of the
// matrices least; x the mean magnitude of a channel, w the mean over all rows of |w| relative to
// the largest of its group. Scales are at least 1e-4 and divided by sqrt(max s * min s); what is
// not finite becomes 1. Q is round_to_grid with the importance diag(H) / s^2. Of a matrix at most
// 256 rows, evenly spread, are looked at.
// Exact: measured; same bits for any thread count if `product` keeps that promise.
// Errors: kInvalidInput for shapes; those of round_to_grid; kExhausted.
// Cost: 40 times rounding and 256 * cols^2 multiply-adds a matrix; 4 * 256 * cols floats.
// Source: Lin et al. 2023 (arXiv 2306.00978); the loss is that of the matrices' outputs.
Result<AwqScales> search_awq_scales(const AwqGroup& group, const MatrixProduct& product,
                                    ThreadPool& pool, std::string_view subject);

}  // namespace packstone
