#include "packstone/kernel/matmul/product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "packstone/base/check.h"
#include "packstone/kernel/isa/isa.h"

namespace packstone {
namespace {

constexpr std::int64_t kPanelRowsMax = 64;
constexpr std::int64_t kPanelFloats = 131072;  // 512 KiB, a quarter of a second-level cache

}  // namespace

void float_product(const MatrixView& a, const MatrixView& b, float* out, std::int64_t out_stride,
                   ThreadPool& pool) {
  PACKSTONE_ASSERT(a.cols == b.cols);
  if (a.rows <= 0 || b.rows <= 0) return;
  const Isa& isa = *isas().front();
  const std::int64_t cols = b.cols;
  const std::int64_t step =
      std::clamp<std::int64_t>(kPanelFloats / std::max<std::int64_t>(cols, 1), 1, kPanelRowsMax);
  const bool packed = b.stride == cols;
  std::vector<std::vector<float>> panels(packed ? 0 : static_cast<std::size_t>(pool.size()));
  for (auto& panel : panels) panel.resize(static_cast<std::size_t>(step * cols));
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t row = unit * step;
      const std::int64_t count = std::min(step, b.rows - row);
      const float* panel = b.row(row);
      if (!packed) {
        float* copy = panels[static_cast<std::size_t>(worker)].data();
        for (std::int64_t i = 0; i < count; ++i)
          std::memcpy(copy + i * cols, b.row(row + i),
                      static_cast<std::size_t>(cols) * sizeof(float));
        panel = copy;
      }
      isa.panel_dot({panel, count, cols, a.data, a.rows, a.stride, out + row, out_stride});
    }
  };
  pool.parallel(ceil_div(b.rows, step), 1, work);
}

}  // namespace packstone
