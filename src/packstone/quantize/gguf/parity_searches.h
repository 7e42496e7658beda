// The scale searches of ggml's reference quantizers, in binary32 and in its order of operations.
// Source: ggml 0.26, ggml-quants.c. Shapes: codes as long as x. Errors: none; every input has a
// defined result. Threads: safe.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace packstone::gguf {

// ggml's threshold below which a group is all zero.
inline constexpr float kZeroGroup = 1e-15f;

// The integer nearest to x, ties to even, for |x| <= 4194303; elsewhere what the low bits of
// x + 1.5 * 2^23 give.
constexpr int nearest_int(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x + 12582912.0f);
  return (bits & 0x007FFFFF) - 0x00400000;
}

// The value of largest magnitude, the first of equals; 0 where all are 0.
float edge_value(std::span<const float> x);

// symmetric_scale(x, w, half, codes): levels [-half, half), codes level + half. 19 scales around
// edge / -half, the best by (sum w x l)^2 / sum w l^2, which makes the returned scale. An empty w
// stands for x^2. A zero group has scale 0 and codes 0 (make_qx_quants, rmse_type 1).
float symmetric_scale(std::span<const float> x, std::span<const float> w, int half,
                      std::span<std::uint8_t> codes);

// coordinate_scale(x, half, codes): from the scale edge / -half at most five passes that move one
// level at a time to where the fit, weighted by x^2, is better (make_q3_quants).
float coordinate_scale(std::span<const float> x, int half, std::span<std::uint8_t> codes);

// The steps of affine_scale: inverse scales (first + delta t + high) / (max - min), t = 0..steps.
struct AffineSweep {
  float first, delta;
  int steps;
  bool absolute;  // the error is |difference|, not its square
  bool bounded;   // codes are bounded before rounding (make_qkx3_quants), not after (make_qkx2)
};

// x ~ scale * code - minimum, minimum >= 0, codes 0..high.
struct AffineScale {
  float scale, minimum;
};
AffineScale affine_scale(std::span<const float> x, std::span<const float> w, int high,
                         const AffineSweep& sweep, std::span<std::uint8_t> codes);

// positive_scale(x, w, high, codes): levels 0..high of values that are not negative: nine scales,
// then coordinate passes (make_qp_quants).
float positive_scale(std::span<const float> x, std::span<const float> w, int high,
                     std::span<std::uint8_t> codes);

}  // namespace packstone::gguf
