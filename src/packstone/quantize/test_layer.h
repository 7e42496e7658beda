// A linear layer with correlated inputs, for tests of quantizers.
#pragma once

#include <random>
#include <vector>

#include "packstone/base/matrix_view.h"
#include "packstone/quantize/second_moment.h"

namespace packstone::testing {

// Sums in float64: a MatrixProduct that no kernel is needed for.
inline void plain_product(const MatrixView& a, const MatrixView& b, float* out,
                          std::int64_t stride) {
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.rows; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < a.cols; ++c)
        sum += static_cast<double>(a.row(i)[c]) * b.row(j)[c];
      out[i * stride + j] = static_cast<float>(sum);
    }
}

// Weights and inputs of a layer whose channels are correlated and unequal.
struct Layer {
  std::int64_t rows, cols;
  std::vector<float> weight, inputs, hessian;
  MatrixView view() const { return {weight.data(), rows, cols, cols}; }
};

// Normal weights; inputs that follow their neighbours, every seventh channel three times as large.
inline Layer make_layer(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Layer layer{rows, cols, {}, {}, {}};
  layer.weight.resize(static_cast<std::size_t>(rows * cols));
  for (float& value : layer.weight) value = 0.02f * normal(random);
  const std::int64_t tokens = 2 * cols;
  layer.inputs.resize(static_cast<std::size_t>(tokens * cols));
  for (std::int64_t t = 0; t < tokens; ++t) {
    float carried = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      carried = 0.9f * carried + normal(random);
      layer.inputs[static_cast<std::size_t>(t * cols + c)] =
          carried * (1.0f + 2.0f * static_cast<float>(c % 7 == 0));
    }
  }
  SecondMoment moment = *SecondMoment::make(cols, "test");
  moment.add({layer.inputs.data(), tokens, cols, cols}, plain_product);
  moment.finish(plain_product);
  layer.hessian.assign(moment.matrix().begin(), moment.matrix().end());
  return layer;
}

}  // namespace packstone::testing
