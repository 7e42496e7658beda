#include "packstone/weight/dot_f64.h"

#include <vector>

#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kRowsAtATime = 8;

}  // namespace

double dot_f64(const float* a, const double* b, std::int64_t n) {
  double lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lane[j] += static_cast<double>(a[i + j]) * b[i + j];
  for (int j = 0; i + j < n; ++j) lane[j] += static_cast<double>(a[i + j]) * b[i + j];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
  return lane[0];
}

void multiply_f64(const PackedWeight& weight, std::int64_t first, std::int64_t count,
                  const double* x, std::int64_t m, std::int64_t x_stride, double* y,
                  std::int64_t y_stride, ThreadPool& pool) {
  const std::int64_t cols = weight.shape().cols;
  std::vector<std::vector<float>> rows(static_cast<std::size_t>(pool.size()));
  for (auto& row : rows) row.resize(static_cast<std::size_t>(cols));
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    std::vector<float>& row = rows[static_cast<std::size_t>(worker)];
    for (std::int64_t r = begin; r < end; ++r) {
      decode_row(weight, first + r, row);
      for (std::int64_t i = 0; i < m; ++i)
        y[i * y_stride + r] = dot_f64(row.data(), x + i * x_stride, cols);
    }
  };
  pool.parallel(count, kRowsAtATime, work);
}

}  // namespace packstone
