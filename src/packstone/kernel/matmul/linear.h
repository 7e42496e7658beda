// A weight made ready to run: y = x W^T straight from the packed bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "packstone/base/thread_pool.h"
#include "packstone/format/packed_weight.h"

namespace packstone {

// One entry of the kernel list (matmul/kernel_list.h).
struct MatmulKernel;

struct LinearOptions {
  // For each output row the stored row that makes it; empty: equal. Rows are looked up, not moved.
  std::vector<std::int32_t> stored_rows;
};

// Scratch for run: one allocation, reused. Made by the model for its largest layer.
class MatmulWorkspace {
 public:
  // For pools of up to `threads` threads and weights of up to `cols_max` columns.
  // Cost: threads * max(16 * cols_max, min(64 * cols_max, 131072)) floats. Errors: std::bad_alloc
  // without memory for them; the model turns it into kExhausted.
  MatmulWorkspace(int threads, std::int64_t cols_max);
  float* worker(int index) const;

 private:
  std::unique_ptr<float[], void (*)(float*)> memory_;
  std::int64_t stride_ = 0;
};

// A ready linear layer. Numerics tier `exact`: float32 activations, exact weight values, float32
// accumulation by fused multiply-add in one fixed order per k, the same for any number of rows, any
// thread count and any instruction set: lane j of 16 sums columns j, j + 16, ... in order, then
// the lanes are added in the tree 8, 4, 2, 1.
class Linear {
 public:
  // prepare(weight, options) picks the kernel: the first of the list that this CPU and format
  // support (PACKSTONE_FORCE_KERNEL=<isa> picks by name). Errors: kInvalidInput for a row map out
  // of range; kUnsupported for a forced kernel that cannot, listing the names that can.
  // Cost: no copy of the weight.
  static Result<Linear> prepare(PackedWeight weight, LinearOptions options = {});

  Shape shape() const;
  const PackedWeight& weight() const { return weight_; }
  std::string_view kernel_name() const;

  // run(x, m, y, ...): y[i, r] = sum_c x[i, c] w[r, c].
  // Shapes: x [m, cols] with row stride x_stride; y [m, rows] with row stride y_stride.
  // Exact: bounded, gamma_k * sum |x||w| with gamma_k = k u / (1 - k u), u = 2^-24; bits of a row
  // do not depend on m.
  // Errors: none. Cost: no allocation. Threads: the pool given.
  void run(const float* x, std::int64_t m, std::int64_t x_stride, float* y, std::int64_t y_stride,
           ThreadPool& pool, const MatmulWorkspace& workspace) const noexcept;

  // run_many(layers, x, ...): run of several layers on the same x in one dispatch (q, k and v; gate
  // and up). Shapes: all layers have the same cols; y[j] and y_stride[j] belong to layers[j].
  // Exact, errors, cost, threads: as run, bit for bit.
  static void run_many(std::span<const Linear* const> layers, const float* x, std::int64_t m,
                       std::int64_t x_stride, std::span<float* const> y,
                       std::span<const std::int64_t> y_stride, ThreadPool& pool,
                       const MatmulWorkspace& workspace) noexcept;

  // run_range(first, count, x, m, ...): run of the output rows [first, first + count) alone.
  // Shapes: y [m, count] with row stride y_stride. Exact, errors, cost, threads: as run, bit for
  // bit. The range must lie within the rows (asserted).
  void run_range(std::int64_t first, std::int64_t count, const float* x, std::int64_t m,
                 std::int64_t x_stride, float* y, std::int64_t y_stride, ThreadPool& pool,
                 const MatmulWorkspace& workspace) const noexcept;

  // gather(ids, out): rows of the weight, decoded. Shapes: out [count, cols]. Exact: rounded as the
  // format says. ids must be in range (asserted).
  void gather(std::span<const std::int32_t> ids, float* out) const noexcept;

 private:
  PackedWeight weight_;
  std::vector<std::int32_t> stored_rows_;
  const MatmulKernel* kernel_ = nullptr;
  Linear(PackedWeight weight, std::vector<std::int32_t> rows, const MatmulKernel* kernel)
      : weight_(std::move(weight)), stored_rows_(std::move(rows)), kernel_(kernel) {}

  std::int64_t stored_row(std::int64_t row) const {
    return stored_rows_.empty() ? row : stored_rows_[static_cast<std::size_t>(row)];
  }
  void decode(std::int64_t row, float* out) const noexcept;
  void decode_panel(std::int64_t row, std::int64_t count, float* out) const noexcept;
  // Output rows [begin, end); y is the place of row `begin`.
  void run_rows(const float* x, std::int64_t m, std::int64_t x_stride, float* y,
                std::int64_t y_stride, std::int64_t begin, std::int64_t end,
                float* scratch) const noexcept;
};

}  // namespace packstone
