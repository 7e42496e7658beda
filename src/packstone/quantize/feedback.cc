#include "packstone/quantize/feedback.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <numeric>
#include <vector>

#include "packstone/quantize/clones.h"
#include "packstone/quantize/factor.h"
#include "packstone/quantize/grid.h"
#include "packstone/quantize/measure.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "quantize.feedback";
constexpr std::int64_t kBlockCols = 128;
constexpr std::int64_t kRowsAtATime = 4;

// target[j] -= factor * source[j].
PACKSTONE_CLONES
void subtract_scaled(float* target, const float* source, float factor, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) target[j] -= factor * source[j];
}

// Rows are independent: they are worked off in slices, so that memory is bounded.
constexpr std::int64_t kSliceFloats = 1 << 24;

// What the slices share, and the buffers of one slice.
struct Job {
  MatrixView weight;  // of the slice
  const FeedbackOptions& options;
  const Grid& grid;
  std::int64_t rows, cols, unit, group;
  std::vector<std::int32_t> column{};  // of each position in the order of work
  std::vector<float> upper{};          // U by position, [cols, cols]; empty: no feedback
  std::vector<float> turned{};         // its transpose
  std::vector<float> cost{};           // of an error, by column
  std::vector<float> correction{};     // P of GPTAQ by position; empty: none
  std::vector<float> corrections{};    // its transpose, negated
  std::vector<float> errors{};         // [rows, cols] by position
  std::vector<float> values{};         // before rounding, of GPTAQ, likewise
  std::vector<float> current{};        // [rows, block]
  std::vector<float> carried{};        // likewise
  std::vector<std::uint8_t> codes{};   // [rows, cols] by column
  std::vector<RawParams> raw{};        // [rows, groups]
  double loss = 0;                     // of the slices that are done

  std::int64_t groups() const { return ceil_div(cols, group); }
  const float* factor_row(std::int64_t position) const { return upper.data() + position * cols; }
};

// The scratch of one worker.
struct Worker {
  std::vector<float> values;
  std::vector<Levels> levels;
  std::vector<GroupValues> groups;
  std::vector<Grid::LevelBuffer> buffers;
};

std::vector<std::int32_t> column_order(const FeedbackInput& input, std::int64_t unit,
                                       ColumnOrder order) {
  const std::int64_t cols = input.weight.cols;
  std::vector<std::int32_t> column(static_cast<std::size_t>(cols));
  std::iota(column.begin(), column.end(), 0);
  if (order == ColumnOrder::kNatural) return column;
  const auto diagonal = [&](std::int32_t at) {
    return input.hessian[static_cast<std::size_t>(at * cols + at)];
  };
  const std::int64_t whole = cols / unit;
  std::vector<std::int32_t> units(static_cast<std::size_t>(whole));
  std::iota(units.begin(), units.end(), 0);
  for (std::int64_t u = 0; u < whole; ++u)
    std::stable_sort(column.begin() + u * unit, column.begin() + (u + 1) * unit,
                     [&](std::int32_t a, std::int32_t b) { return diagonal(a) > diagonal(b); });
  const auto largest = [&](std::int32_t u) {
    return diagonal(column[static_cast<std::size_t>(u * unit)]);
  };
  std::ranges::stable_sort(units,
                           [&](std::int32_t a, std::int32_t b) { return largest(a) > largest(b); });
  std::vector<std::int32_t> ordered;
  for (const std::int32_t u : units)
    ordered.insert(ordered.end(), column.begin() + u * unit, column.begin() + (u + 1) * unit);
  ordered.insert(ordered.end(), column.begin() + whole * unit, column.end());
  return ordered;
}

// Chooses the parameters of the unit that holds `position`, for the values of a row by column.
void fit_unit(const Job& job, std::int64_t row, std::int64_t first_col, Worker& worker,
              RawParams* raw) {
  const std::int64_t width = std::min(job.unit, job.cols - first_col);
  const auto groups = static_cast<std::size_t>(ceil_div(width, job.group));
  const std::span<RawParams> chosen(raw + row * job.groups() + first_col / job.group, groups);
  job.grid.fit({worker.values.data(), static_cast<std::size_t>(width)},
               {job.cost.data() + first_col, static_cast<std::size_t>(width)}, chosen);
}

// Levels of the unit's groups from its stored parameters.
void read_levels(const Job& job, std::int64_t row, std::int64_t first_col, Worker& worker) {
  const std::int64_t width = std::min(job.unit, job.cols - first_col);
  const auto groups = static_cast<std::size_t>(ceil_div(width, job.group));
  const RawParams* raw = job.raw.data() + row * job.groups() + first_col / job.group;
  decode_params(job.grid.id(), job.grid.params(), {raw, groups}, {worker.groups.data(), groups});
  for (std::size_t g = 0; g < groups; ++g)
    worker.levels[g] = job.grid.levels(worker.groups[g], worker.buffers[g]);
}

// Positions [begin, end) of one row, all in one unit; `current` is the row's values from position
// `block` on, up to block_end.
void run_unit(Job& job, std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t block,
              std::int64_t block_end, float* current, Worker& worker) {
  const float* original = job.weight.row(row);
  const float beta = job.options.beta;
  const std::int64_t first_col = job.column[static_cast<std::size_t>(begin)] / job.unit * job.unit;
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int32_t col = job.column[static_cast<std::size_t>(p)];
    const float value = current[p - block];
    const Levels::Rounded rounded =
        worker.levels[static_cast<std::size_t>((col - first_col) / job.group)].round(value);
    job.codes[static_cast<std::size_t>(row * job.cols + col)] =
        static_cast<std::uint8_t>(rounded.code);
    if (job.upper.empty()) continue;
    const float* factor = job.factor_row(p);
    float rest = value - rounded.value;
    if (beta != 0) rest -= beta * (value - original[col]);
    const float error = rest / factor[p];
    job.errors[static_cast<std::size_t>(row * job.cols + p)] = error;
    subtract_scaled(current + (p + 1 - block), factor + p + 1, error, block_end - p - 1);
    if (!job.correction.empty()) {
      job.values[static_cast<std::size_t>(row * job.cols + p)] = value;
      subtract_scaled(current + (p + 1 - block), job.correction.data() + p * job.cols + p + 1,
                      -value, block_end - p - 1);
    }
    if (beta != 0 && p + 1 < block_end) {
      float& next = current[p + 1 - block];
      next -= beta * (next - original[job.column[static_cast<std::size_t>(p + 1)]]);
    }
  }
}

void run_row(Job& job, std::int64_t row, std::int64_t block, std::int64_t block_end, bool fit_here,
             Worker& worker) {
  float* current = job.current.data() + row * (block_end - block);
  const float* original = job.weight.row(row);
  for (std::int64_t p = block; p < block_end; ++p)
    current[p - block] = original[job.column[static_cast<std::size_t>(p)]] - current[p - block];
  for (std::int64_t begin = block; begin < block_end;) {
    const std::int64_t unit = job.column[static_cast<std::size_t>(begin)] / job.unit;
    const std::int64_t first_col = unit * job.unit;
    const std::int64_t width = std::min(job.unit, job.cols - first_col);
    const std::int64_t end = std::min(begin + width, block_end);
    if (fit_here) {
      for (std::int64_t p = begin; p < end; ++p)
        worker
            .values[static_cast<std::size_t>(job.column[static_cast<std::size_t>(p)] - first_col)] =
            current[p - block];
      fit_unit(job, row, first_col, worker, job.raw.data());
    }
    read_levels(job, row, first_col, worker);
    run_unit(job, row, begin, end, block, block_end, current, worker);
    begin = end;
  }
}

// Parameters from the weights as they are; false without memory.
bool fit_all(Job& job, ThreadPool& pool, std::vector<Worker>& workers) {
  std::atomic<bool> no_memory{false};
  auto work = [&](std::int64_t begin, std::int64_t end, int index) {
    Worker& worker = workers[static_cast<std::size_t>(index)];
    try {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t col = 0; col < job.cols; col += job.unit) {
          std::copy_n(job.weight.row(row) + col, std::min(job.unit, job.cols - col),
                      worker.values.begin());
          fit_unit(job, row, col, worker, job.raw.data());
        }
    } catch (const std::bad_alloc&) {  // no exception leaves a task
      no_memory = true;
    }
  };
  pool.parallel(job.rows, kRowsAtATime, work);
  return !no_memory;
}

// What the columns before `block` take from each row's values in the block.
void carry_over(Job& job, std::int64_t block, std::int64_t width, const MatrixProduct& product) {
  std::ranges::fill(job.current, 0.0f);
  if (block == 0 || job.upper.empty()) return;
  product({job.errors.data(), job.rows, block, job.cols},
          {job.turned.data() + block * job.cols, width, block, job.cols}, job.current.data(),
          width);
  if (job.correction.empty()) return;
  job.carried.resize(static_cast<std::size_t>(job.rows * width));
  product({job.values.data(), job.rows, block, job.cols},
          {job.corrections.data() + block * job.cols, width, block, job.cols}, job.carried.data(),
          width);
  for (std::size_t i = 0; i < job.carried.size(); ++i) job.current[i] += job.carried[i];
}

// False without memory.
bool run_blocks(Job& job, const MatrixProduct& product, ThreadPool& pool) {
  std::vector<Worker> workers(static_cast<std::size_t>(pool.size()));
  const auto groups = static_cast<std::size_t>(ceil_div(job.unit, job.group));
  for (Worker& worker : workers) {
    worker.values.resize(static_cast<std::size_t>(job.unit));
    worker.levels.resize(groups);
    worker.groups.resize(groups);
    worker.buffers.resize(groups);
  }
  const bool wide = job.unit > 2 * kBlockCols;
  const bool fit_first = wide || job.options.static_groups;
  if (fit_first && !fit_all(job, pool, workers)) return false;
  std::atomic<bool> no_memory{false};
  const std::int64_t step = wide ? kBlockCols : ceil_div(kBlockCols, job.unit) * job.unit;
  job.current.resize(static_cast<std::size_t>(job.rows * std::min(step, job.cols)));
  for (std::int64_t block = 0; block < job.cols; block += step) {
    const std::int64_t end = std::min(block + step, job.cols), width = end - block;
    carry_over(job, block, width, product);
    auto work = [&](std::int64_t first, std::int64_t last, int index) {
      try {
        for (std::int64_t row = first; row < last; ++row)
          run_row(job, row, block, end, !fit_first, workers[static_cast<std::size_t>(index)]);
      } catch (const std::bad_alloc&) {  // no exception leaves a task
        no_memory = true;
      }
    };
    pool.parallel(job.rows, kRowsAtATime, work);
    if (no_memory) return false;
  }
  return true;
}

struct Quadratic {
  double lost = 0, whole = 0;  // tr(E H E^T), tr(W H W^T)
};

// Of a packed weight against its values; H by column.
Quadratic quadratic(const PackedWeight& packed, const MatrixView& weight,
                    const std::vector<float>& hessian, const MatrixProduct& product) {
  constexpr std::int64_t kRows = 256;
  const std::int64_t n = weight.cols;
  std::vector<float> rest(static_cast<std::size_t>(kRows * n)), out(rest.size());
  const auto add = [&](const MatrixView& x) {
    product(x, {hessian.data(), n, n, n}, out.data(), n);
    double sum = 0;
    for (std::int64_t row = 0; row < x.rows; ++row)
      for (std::int64_t col = 0; col < n; ++col)
        sum += static_cast<double>(x.row(row)[col]) * out[static_cast<std::size_t>(row * n + col)];
    return sum;
  };
  Quadratic sums;
  for (std::int64_t first = 0; first < weight.rows; first += kRows) {
    const std::int64_t rows = std::min(kRows, weight.rows - first);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* at = rest.data() + row * n;
      decode_row(packed, first + row, {at, static_cast<std::size_t>(n)});
      for (std::int64_t col = 0; col < n; ++col) at[col] = weight.row(first + row)[col] - at[col];
    }
    sums.lost += add({rest.data(), rows, n, n});
    sums.whole += add(weight.part(first, rows, 0, n));
  }
  return sums;
}

void pack(Job& job, OwnedWeight& owned, std::int64_t first_row, ThreadPool& pool) {
  const auto planes = owned.pointers();
  std::vector<std::vector<std::uint32_t>> codes(static_cast<std::size_t>(pool.size()));
  for (auto& row : codes) row.resize(static_cast<std::size_t>(job.cols));
  auto work = [&](std::int64_t first, std::int64_t last, int worker) {
    auto& wide = codes[static_cast<std::size_t>(worker)];
    for (std::int64_t row = first; row < last; ++row) {
      std::copy_n(job.codes.begin() + row * job.cols, job.cols, wide.begin());
      pack_row(owned.id, owned.shape, owned.params, planes.data(), first_row + row, wide,
               {job.raw.data() + row * job.groups(), static_cast<std::size_t>(job.groups())});
    }
  };
  pool.parallel(job.rows, kPackUnitRows, work);
}

// All rows, slice by slice. `product` is null without feedback.
Result<PackedWeight> run_slices(Job& job, const MatrixView& weight, const MatrixProduct& product,
                                ThreadPool& pool, std::string_view subject) {
  PACKSTONE_TRY(OwnedWeight owned, OwnedWeight::allocate(job.grid.id(), {weight.rows, weight.cols},
                                                         job.grid.params()));
  const std::int64_t step =
      std::max<std::int64_t>(kSliceFloats / job.cols / kPackUnitRows, 1) * kPackUnitRows;
  for (std::int64_t first = 0; first < weight.rows; first += step) {
    job.rows = std::min(step, weight.rows - first);
    job.weight = weight.part(first, job.rows, 0, weight.cols);
    job.codes.resize(static_cast<std::size_t>(job.rows * job.cols));
    if (!job.upper.empty()) job.errors.resize(job.codes.size());
    if (!job.correction.empty()) job.values.resize(job.codes.size());
    job.raw.resize(static_cast<std::size_t>(job.rows * job.groups()));
    if (!run_blocks(job, product, pool))
      return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                  "the scratch of one unit of columns per thread");
    for (const float error : job.errors) job.loss += 0.5 * (static_cast<double>(error) * error);
    pack(job, owned, first, pool);
  }
  return std::move(owned).release(subject);
}

Status check_shape(std::string_view where, const MatrixView& weight, FormatId target,
                   const FormatParams& params, std::string_view subject) {
  if (weight.rows < 1 || weight.cols < 1)
    return fail(ErrorCode::kInvalidInput, where, subject,
                fmt::format("a weight of [{}, {}]", weight.rows, weight.cols),
                "a row and a column");
  if (const char* rule = layout_rule(target, {weight.rows, weight.cols}, params))
    return fail(ErrorCode::kInvalidInput, where, subject,
                fmt::format("{} of [{}, {}], group {}", format_info(target).name, weight.rows,
                            weight.cols, params.group_cols),
                rule);
  return {};
}

Status check(const FeedbackInput& input, FormatId target, const FormatParams& params,
             const FeedbackOptions& options, std::string_view subject) {
  PACKSTONE_CHECK_OK(check_shape(kWhere, input.weight, target, params, subject));
  const auto cols = static_cast<std::size_t>(input.weight.cols);
  if (input.hessian.size() % cols != 0 || input.hessian.size() / cols != cols)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} values of a Hessian", input.hessian.size()),
                fmt::format("[{}, {}]", cols, cols));
  for (std::size_t i = 0; i < cols; ++i)
    if (!std::isfinite(input.hessian[i * cols + i]))
      return fail(ErrorCode::kNotRepresentable, kWhere, subject,
                  fmt::format("a Hessian that is not finite at [{}, {}]", i, i),
                  "finite activations");
  if (!input.drift.empty() && input.drift.size() != input.hessian.size())
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} values of a drift", input.drift.size()),
                fmt::format("[{}, {}]", cols, cols));
  if (!(options.beta >= 0 && options.beta <= 1))
    return fail(ErrorCode::kInvalidInput, kWhere, subject, fmt::format("beta {}", options.beta),
                "a number from 0 to 1");
  return check_finite(input.weight, kWhere, target, subject);
}

Job make_job(const Grid& grid, const FeedbackOptions& options, std::int64_t cols) {
  return {{}, options, grid, 0, cols, grid.unit_cols(), grid.group_cols()};
}

// A [cols, cols] matrix with rows and columns in the order of work.
std::vector<float> by_position(const Job& job, std::span<const float> matrix) {
  const std::int64_t n = job.cols;
  std::vector<float> out(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      out[static_cast<std::size_t>(i * n + j)] = matrix[static_cast<std::size_t>(
          job.column[static_cast<std::size_t>(i)] * n + job.column[static_cast<std::size_t>(j)])];
  return out;
}

// The transpose of a [n, n] matrix times `sign`.
std::vector<float> turned_by(const std::vector<float>& matrix, std::int64_t n, float sign) {
  std::vector<float> out(matrix.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      out[static_cast<std::size_t>(j * n + i)] = sign * matrix[static_cast<std::size_t>(i * n + j)];
  return out;
}

Result<FeedbackResult> run(const FeedbackInput& input, const Grid& grid,
                           const FeedbackOptions& options, const MatrixProduct& product,
                           ThreadPool& pool, std::string_view subject) {
  Job job = make_job(grid, options, input.weight.cols);
  const std::int64_t n = job.cols;
  job.column = column_order(input, job.unit, options.order);
  std::vector<float> hessian = by_position(job, input.hessian);
  PACKSTONE_TRY(Factor factor, inverse_factor(hessian, n, {input.damping}, pool, subject));
  job.upper = std::move(factor.upper);
  job.turned = turned_by(job.upper, n, 1.0f);
  job.cost.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const float pivot = job.upper[static_cast<std::size_t>(i * n + i)];
    job.cost[static_cast<std::size_t>(job.column[static_cast<std::size_t>(i)])] =
        1.0f / (pivot * pivot);
  }
  if (!input.drift.empty() && options.alpha != 0) {
    PACKSTONE_TRY(job.correction, gptaq_correction(by_position(job, input.drift), job.upper,
                                                   options.alpha, n, product, subject));
    job.corrections = turned_by(job.correction, n, -1.0f);
  }
  PACKSTONE_TRY(PackedWeight weight, run_slices(job, input.weight, product, pool, subject));
  PACKSTONE_TRY(const QuantizeReport report, measure(weight, input.weight, pool, subject));
  std::ranges::copy(input.hessian, hessian.begin());
  for (std::int64_t i = 0; i < n; ++i)
    hessian[static_cast<std::size_t>(i * n + i)] += static_cast<float>(factor.lambda);
  const Quadratic sums = quadratic(weight, input.weight, hessian, product);
  return FeedbackResult{std::move(weight), report, sums.whole > 0 ? sums.lost / sums.whole : 0,
                        factor.lambda, job.loss};
}

}  // namespace

Result<std::vector<float>> gptaq_correction(std::span<const float> drift,
                                            std::span<const float> upper, float alpha,
                                            std::int64_t n, const MatrixProduct& product,
                                            std::string_view subject) {
  constexpr std::string_view kCorrection = "quantize.gptaq_correction";
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(n, 0));
  if (n < 1 || drift.size() != size * size || upper.size() != size * size)
    return fail(ErrorCode::kInvalidInput, kCorrection, subject,
                fmt::format("a drift of {} and a factor of {} values", drift.size(), upper.size()),
                fmt::format("[{}, {}] each", n, n));
  if (!std::isfinite(alpha))
    return fail(ErrorCode::kInvalidInput, kCorrection, subject, fmt::format("alpha {}", alpha),
                "a finite number");
  for (std::size_t i = 0; i < drift.size(); ++i)
    if (!std::isfinite(drift[i]))
      return fail(ErrorCode::kNotRepresentable, kCorrection, subject,
                  fmt::format("a drift that is not finite at [{}, {}]", i / size, i % size),
                  "finite activations");
  try {
    std::vector<float> inner(size * size);
    product({drift.data(), n, n, n}, {upper.data(), n, n, n}, inner.data(), n);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j)
        inner[i * size + j] = j > i ? alpha * inner[i * size + j] : 0.0f;
    const std::vector<float> turned = turned_by({upper.begin(), upper.end()}, n, 1.0f);
    std::vector<float> correction(size * size);
    product({inner.data(), n, n, n}, {turned.data(), n, n, n}, correction.data(), n);
    for (std::size_t i = 0; i < size; ++i)
      std::fill_n(correction.begin() + static_cast<std::ptrdiff_t>(i * size), i + 1, 0.0f);
    return correction;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kCorrection, subject, "too little memory",
                fmt::format("{} MiB", 3 * n * n >> 18));
  }
}

Result<FeedbackResult> quantize_with_feedback(const FeedbackInput& input, FormatId target,
                                              const FormatParams& params,
                                              const FeedbackOptions& options,
                                              const MatrixProduct& product, ThreadPool& pool,
                                              std::string_view subject) {
  PACKSTONE_CHECK_OK(check(input, target, params, options, subject));
  try {
    PACKSTONE_TRY(Grid grid, Grid::make(target, params, input.weight.cols, subject));
    grid.see(input.weight);
    return run(input, grid, options, product, pool, subject);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "the Hessian three times in float64");
  }
}

Result<Quantized> round_to_grid(const MatrixView& weight, std::span<const float> importance,
                                FormatId target, const FormatParams& params, ThreadPool& pool,
                                std::string_view subject) {
  constexpr std::string_view kRounding = "quantize.round_to_grid";
  PACKSTONE_CHECK_OK(check_shape(kRounding, weight, target, params, subject));
  if (!importance.empty() && static_cast<std::int64_t>(importance.size()) != weight.cols)
    return fail(ErrorCode::kInvalidInput, kRounding, subject,
                fmt::format("an importance of {} columns", importance.size()),
                fmt::format("{} or none", weight.cols));
  for (std::size_t i = 0; i < importance.size(); ++i)
    if (!std::isfinite(importance[i]) || importance[i] < 0)
      return fail(ErrorCode::kInvalidInput, kRounding, subject,
                  fmt::format("importance {} of column {}", importance[i], i),
                  "finite numbers, none below zero");
  PACKSTONE_CHECK_OK(check_finite(weight, kRounding, target, subject));
  try {
    PACKSTONE_TRY(Grid grid, Grid::make(target, params, weight.cols, subject));
    grid.see(weight);
    const FeedbackOptions options{.order = ColumnOrder::kNatural};
    Job job = make_job(grid, options, weight.cols);
    job.column.resize(static_cast<std::size_t>(weight.cols));
    std::iota(job.column.begin(), job.column.end(), 0);
    job.cost.assign(importance.begin(), importance.end());
    job.cost.resize(job.column.size(), 1.0f);
    PACKSTONE_TRY(PackedWeight packed, run_slices(job, weight, {}, pool, subject));
    PACKSTONE_TRY(const QuantizeReport report, measure(packed, weight, pool, subject));
    return Quantized{std::move(packed), report};
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kRounding, subject, "too little memory",
                "one slice of the weight");
  }
}

}  // namespace packstone
