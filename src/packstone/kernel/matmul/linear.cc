#include "packstone/kernel/matmul/linear.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "packstone/base/check.h"
#include "packstone/kernel/matmul/kernel_list.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

// Output rows of one unit of parallel work, and the panel of decoded rows: at least 16 rows; more,
// up to 64, while the panel stays within 512 KiB, a quarter of a second-level cache.
constexpr std::int64_t kUnitRows = 16;
constexpr std::int64_t kPanelRowsMax = 64;
constexpr std::int64_t kPanelFloats = 131072;

std::int64_t panel_rows(std::int64_t cols) {
  return std::clamp(kPanelFloats / std::max<std::int64_t>(cols, 1), kUnitRows, kPanelRowsMax);
}

std::string kernel_name_of(std::string_view format, std::string_view isa) {
  std::string name = fmt::format("matmul_{}_f32_{}", format, isa);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::vector<MatmulKernel> make_kernels() {
  std::vector<MatmulKernel> list;
  for (const Isa* isa : isas()) {
    for (const FormatKernel& reader : isa->formats)
      list.push_back({kernel_name_of(reader.format, isa->name), isa, &reader});
    list.push_back({kernel_name_of("derived", isa->name), isa, nullptr});
  }
  return list;
}

WeightView view_of(const PackedWeight& weight) {
  WeightView view;
  for (int i = 0; i < weight.plane_count(); ++i) {
    const ByteSpan plane = weight.plane(i);
    view.plane[i] = reinterpret_cast<const unsigned char*>(plane.data());
    view.plane_end[i] = view.plane[i] + plane.size();
  }
  view.rows = weight.shape().rows;
  view.cols = weight.shape().cols;
  view.group_cols = weight.params().group_cols;
  view.metadata = weight.params().metadata;
  return view;
}

void free_floats(float* memory) {
  ::operator delete[](memory, std::align_val_t{64});
}

Status check_rows(const PackedWeight& weight, const std::vector<std::int32_t>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i] < 0 || rows[i] >= weight.shape().rows)
      return fail(ErrorCode::kInvalidInput, "kernel.prepare", fmt::format("stored row {}", i),
                  fmt::format("{}", rows[i]), fmt::format("0 to {}", weight.shape().rows - 1));
  return {};
}

}  // namespace

std::span<const MatmulKernel> matmul_kernels() {
  static const std::vector<MatmulKernel> list = make_kernels();
  return list;
}

bool kernel_takes(const MatmulKernel& kernel, const PackedWeight& weight) {
  if (kernel.reader == nullptr) return true;
  return kernel.reader->format == weight.format().name &&
         (kernel.reader->metadata < 0 ||
          kernel.reader->metadata == static_cast<int>(weight.params().metadata));
}

MatmulWorkspace::MatmulWorkspace(int threads, std::int64_t cols_max)
    : memory_(nullptr, free_floats) {
  const std::int64_t cols = std::max<std::int64_t>(cols_max, 1);
  stride_ = std::max(kUnitRows * cols, std::min(kPanelRowsMax * cols, kPanelFloats));
  stride_ = (stride_ + 15) / 16 * 16;
  const std::size_t bytes = static_cast<std::size_t>(std::max(threads, 1)) *
                            static_cast<std::size_t>(stride_) * sizeof(float);
  memory_.reset(static_cast<float*>(::operator new[](bytes, std::align_val_t{64})));
}

float* MatmulWorkspace::worker(int index) const {
  return memory_.get() + index * stride_;
}

Result<Linear> Linear::prepare(PackedWeight weight, LinearOptions options) {
  PACKSTONE_CHECK_OK(check_rows(weight, options.stored_rows));
  const char* forced = std::getenv("PACKSTONE_FORCE_KERNEL");
  const std::string_view wanted = forced == nullptr ? "" : forced;
  for (const MatmulKernel& kernel : matmul_kernels()) {
    if (!wanted.empty() && wanted != kernel.isa->name) continue;
    if (kernel_takes(kernel, weight))
      return Linear(std::move(weight), std::move(options.stored_rows), &kernel);
  }
  std::string names;
  for (const Isa* isa : isas()) names += fmt::format("{}{}", names.empty() ? "" : ", ", isa->name);
  return fail(ErrorCode::kUnsupported, "kernel.prepare", "PACKSTONE_FORCE_KERNEL", wanted,
              fmt::format("one of {} on this CPU", names));
}

Shape Linear::shape() const {
  const Shape stored = weight_.shape();
  return {stored_rows_.empty() ? stored.rows : static_cast<std::int64_t>(stored_rows_.size()),
          stored.cols};
}

std::string_view Linear::kernel_name() const {
  return kernel_->name;
}

void Linear::decode(std::int64_t row, float* out) const noexcept {
  if (kernel_->reader != nullptr) {
    kernel_->reader->decode(view_of(weight_), row, out);
  } else {
    decode_row(weight_, row, {out, static_cast<std::size_t>(weight_.shape().cols)});
  }
}

// Rows [row, row + count) of the panel.
void Linear::decode_panel(std::int64_t row, std::int64_t count, float* out) const noexcept {
  const std::int64_t cols = weight_.shape().cols;
  if (kernel_->reader == nullptr && stored_rows_.empty()) {
    decode_rows(weight_, row, count, {out, static_cast<std::size_t>(count * cols)});
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) decode(stored_row(row + i), out + i * cols);
}

// Output rows [begin, end). One activation row: decode and multiply in one pass. More: decode a
// panel once, then multiply it with all of them. Both add in the same order.
void Linear::run_rows(const float* x, std::int64_t m, std::int64_t x_stride, float* y,
                      std::int64_t y_stride, std::int64_t begin, std::int64_t end,
                      float* scratch) const noexcept {
  const std::int64_t cols = weight_.shape().cols;
  const WeightView view = view_of(weight_);
  if (m == 1 && kernel_->reader != nullptr) {
    std::int64_t row = begin;
    for (; row + 4 <= end; row += 4) {
      const std::int64_t rows[4] = {stored_row(row), stored_row(row + 1), stored_row(row + 2),
                                    stored_row(row + 3)};
      kernel_->reader->dot4(view, rows, x, y + (row - begin));
    }
    for (; row < end; ++row) kernel_->reader->dot1(view, stored_row(row), x, y + (row - begin));
    return;
  }
  const std::int64_t step = panel_rows(cols);
  for (std::int64_t row = begin; row < end; row += step) {
    const std::int64_t count = std::min(step, end - row);
    decode_panel(row, count, scratch);
    kernel_->isa->panel_dot({scratch, count, cols, x, m, x_stride, y + (row - begin), y_stride});
  }
}

void Linear::run(const float* x, std::int64_t m, std::int64_t x_stride, float* y,
                 std::int64_t y_stride, ThreadPool& pool,
                 const MatmulWorkspace& workspace) const noexcept {
  const Linear* const layers[] = {this};
  float* const targets[] = {y};
  const std::int64_t strides[] = {y_stride};
  run_many(layers, x, m, x_stride, targets, strides, pool, workspace);
}

void Linear::run_many(std::span<const Linear* const> layers, const float* x, std::int64_t m,
                      std::int64_t x_stride, std::span<float* const> y,
                      std::span<const std::int64_t> y_stride, ThreadPool& pool,
                      const MatmulWorkspace& workspace) noexcept {
  PACKSTONE_ASSERT(layers.size() == y.size());
  PACKSTONE_ASSERT(layers.size() == y_stride.size());
  if (m <= 0) return;
  std::int64_t units = 0;
  for (const Linear* layer : layers) units += ceil_div(layer->shape().rows, kUnitRows);
  // Units of all layers in a row; a range of units is cut at the layers' ends.
  auto task = [&](std::int64_t begin, std::int64_t end, int worker) {
    std::int64_t first = 0;
    for (std::size_t j = 0; j < layers.size() && first < end; ++j) {
      const std::int64_t rows = layers[j]->shape().rows, count = ceil_div(rows, kUnitRows);
      const std::int64_t from = std::max(begin - first, std::int64_t{0});
      const std::int64_t to = std::min(end - first, count);
      if (from < to)
        layers[j]->run_rows(x, m, x_stride, y[j] + from * kUnitRows, y_stride[j], from * kUnitRows,
                            std::min(to * kUnitRows, rows), workspace.worker(worker));
      first += count;
    }
  };
  pool.parallel(units, 1, task);
}

void Linear::run_range(std::int64_t first, std::int64_t count, const float* x, std::int64_t m,
                       std::int64_t x_stride, float* y, std::int64_t y_stride, ThreadPool& pool,
                       const MatmulWorkspace& workspace) const noexcept {
  PACKSTONE_ASSERT(first >= 0 && count >= 0 && first + count <= shape().rows);
  if (m <= 0) return;
  auto task = [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::int64_t from = begin * kUnitRows, to = std::min(end * kUnitRows, count);
    run_rows(x, m, x_stride, y + from, y_stride, first + from, first + to,
             workspace.worker(worker));
  };
  pool.parallel(ceil_div(count, kUnitRows), 1, task);
}

void Linear::gather(std::span<const std::int32_t> ids, float* out) const noexcept {
  const std::int64_t cols = weight_.shape().cols;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    PACKSTONE_ASSERT(ids[i] >= 0 && ids[i] < shape().rows);
    decode(stored_row(ids[i]), out + static_cast<std::int64_t>(i) * cols);
  }
}

}  // namespace packstone
