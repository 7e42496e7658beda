#include "packstone/quantize/product_f64.h"

#include <cstring>

#include "packstone/quantize/clones.h"

// Vectors are passed between functions that are always inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace packstone {
namespace {

using Lanes = double __attribute__((vector_size(64), aligned(8), may_alias));

constexpr int kLanes = 8;

PACKSTONE_ALWAYS_INLINE double sum_tree(Lanes lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

// The last columns, fewer than a vector, with zeros behind: x + 0 * y changes no sum but -0.
PACKSTONE_ALWAYS_INLINE Lanes load_rest(const double* x, std::int64_t rest) {
  Lanes lanes{};
  std::memcpy(&lanes, x, static_cast<std::size_t>(rest) * sizeof(double));
  return lanes;
}

}  // namespace

PACKSTONE_CLONES
void subtract_product_f64(const double* a, std::int64_t m, std::int64_t a_stride, const double* b,
                          std::int64_t n, std::int64_t b_stride, std::int64_t k, double* out,
                          std::int64_t out_stride) {
  constexpr int kRows = 4, kCols = 4;
  const std::int64_t whole = k / kLanes * kLanes;
  for (std::int64_t j = 0; j < n; j += kCols)
    for (std::int64_t i = 0; i < m; i += kRows) {
      const std::int64_t rows = m - i < kRows ? m - i : kRows;
      const std::int64_t cols = n - j < kCols ? n - j : kCols;
      const double *pa[kRows], *pb[kCols];
      for (int r = 0; r < kRows; ++r) pa[r] = a + (i + (r < rows ? r : 0)) * a_stride;
      for (int c = 0; c < kCols; ++c) pb[c] = b + (j + (c < cols ? c : 0)) * b_stride;
      Lanes s00{}, s01{}, s02{}, s03{}, s10{}, s11{}, s12{}, s13{};
      Lanes s20{}, s21{}, s22{}, s23{}, s30{}, s31{}, s32{}, s33{};
      const auto step = [&](Lanes a0, Lanes a1, Lanes a2, Lanes a3, Lanes b0, Lanes b1, Lanes b2,
                            Lanes b3) __attribute__((always_inline)) {
        s00 += a0 * b0, s01 += a0 * b1, s02 += a0 * b2, s03 += a0 * b3;
        s10 += a1 * b0, s11 += a1 * b1, s12 += a1 * b2, s13 += a1 * b3;
        s20 += a2 * b0, s21 += a2 * b1, s22 += a2 * b2, s23 += a2 * b3;
        s30 += a3 * b0, s31 += a3 * b1, s32 += a3 * b2, s33 += a3 * b3;
      };
      const auto load = [](const double* x) __attribute__((always_inline)) {
        return *reinterpret_cast<const Lanes*>(x);
      };
      for (std::int64_t c = 0; c < whole; c += kLanes)
        step(load(pa[0] + c), load(pa[1] + c), load(pa[2] + c), load(pa[3] + c), load(pb[0] + c),
             load(pb[1] + c), load(pb[2] + c), load(pb[3] + c));
      if (const std::int64_t rest = k - whole; rest > 0)
        step(load_rest(pa[0] + whole, rest), load_rest(pa[1] + whole, rest),
             load_rest(pa[2] + whole, rest), load_rest(pa[3] + whole, rest),
             load_rest(pb[0] + whole, rest), load_rest(pb[1] + whole, rest),
             load_rest(pb[2] + whole, rest), load_rest(pb[3] + whole, rest));
      const Lanes sums[kRows][kCols] = {
          {s00, s01, s02, s03}, {s10, s11, s12, s13}, {s20, s21, s22, s23}, {s30, s31, s32, s33}};
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c)
          out[(i + r) * out_stride + j + c] -= sum_tree(sums[r][c]);
    }
}

}  // namespace packstone
