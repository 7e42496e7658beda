#include "packstone/quantize/feedback.h"

#include <algorithm>
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

// All that the rows share.
struct Job {
  const FeedbackInput& input;
  const FeedbackOptions& options;
  const Grid& grid;
  std::int64_t rows, cols, unit, group;
  std::vector<std::int32_t> column;  // of each position in the order of work
  std::vector<float> upper;          // U by position, [cols, cols]
  std::vector<float> turned;         // its transpose
  std::vector<float> cost;           // 1 / U[k, k]^2 by column
  std::vector<float> errors;         // [rows, cols] by position
  std::vector<float> current;        // [rows, block]
  std::vector<std::uint8_t> codes;   // [rows, cols] by column
  std::vector<RawParams> raw;        // [rows, groups]

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
  std::ranges::stable_sort(
      units, [&](std::int32_t a, std::int32_t b) { return largest(a) > largest(b); });
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
  const float* original = job.input.weight.row(row);
  const float beta = job.options.beta;
  const std::int64_t first_col =
      job.column[static_cast<std::size_t>(begin)] / job.unit * job.unit;
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int32_t col = job.column[static_cast<std::size_t>(p)];
    const float* factor = job.factor_row(p);
    const float value = current[p - block];
    const Levels::Rounded rounded =
        worker.levels[static_cast<std::size_t>((col - first_col) / job.group)].round(value);
    job.codes[static_cast<std::size_t>(row * job.cols + col)] =
        static_cast<std::uint8_t>(rounded.code);
    float rest = value - rounded.value;
    if (beta != 0) rest -= beta * (value - original[col]);
    const float error = rest / factor[p];
    job.errors[static_cast<std::size_t>(row * job.cols + p)] = error;
    subtract_scaled(current + (p + 1 - block), factor + p + 1, error, block_end - p - 1);
    if (beta != 0 && p + 1 < block_end) {
      float& next = current[p + 1 - block];
      next -= beta * (next - original[job.column[static_cast<std::size_t>(p + 1)]]);
    }
  }
}

void run_row(Job& job, std::int64_t row, std::int64_t block, std::int64_t block_end,
             bool fit_here, Worker& worker) {
  float* current = job.current.data() + row * (block_end - block);
  const float* original = job.input.weight.row(row);
  for (std::int64_t p = block; p < block_end; ++p)
    current[p - block] = original[job.column[static_cast<std::size_t>(p)]] - current[p - block];
  for (std::int64_t begin = block; begin < block_end;) {
    const std::int64_t unit = job.column[static_cast<std::size_t>(begin)] / job.unit;
    const std::int64_t first_col = unit * job.unit;
    const std::int64_t width = std::min(job.unit, job.cols - first_col);
    const std::int64_t end = std::min(begin + width, block_end);
    if (fit_here) {
      for (std::int64_t p = begin; p < end; ++p)
        worker.values[static_cast<std::size_t>(job.column[static_cast<std::size_t>(p)] -
                                               first_col)] = current[p - block];
      fit_unit(job, row, first_col, worker, job.raw.data());
    }
    read_levels(job, row, first_col, worker);
    run_unit(job, row, begin, end, block, block_end, current, worker);
    begin = end;
  }
}

// Parameters from the weights as they are.
void fit_all(Job& job, ThreadPool& pool, std::vector<Worker>& workers) {
  auto work = [&](std::int64_t begin, std::int64_t end, int index) {
    Worker& worker = workers[static_cast<std::size_t>(index)];
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t col = 0; col < job.cols; col += job.unit) {
        std::copy_n(job.input.weight.row(row) + col, std::min(job.unit, job.cols - col),
                    worker.values.begin());
        fit_unit(job, row, col, worker, job.raw.data());
      }
  };
  pool.parallel(job.rows, kRowsAtATime, work);
}

void run_blocks(Job& job, const MatrixProduct& product, ThreadPool& pool) {
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
  if (fit_first) fit_all(job, pool, workers);
  const std::int64_t step = wide ? kBlockCols : ceil_div(kBlockCols, job.unit) * job.unit;
  job.current.resize(static_cast<std::size_t>(job.rows * std::min(step, job.cols)));
  for (std::int64_t block = 0; block < job.cols; block += step) {
    const std::int64_t end = std::min(block + step, job.cols), width = end - block;
    std::ranges::fill(job.current, 0.0f);
    if (block > 0)
      product({job.errors.data(), job.rows, block, job.cols},
              {job.turned.data() + block * job.cols, width, block, job.cols}, job.current.data(),
              width);
    auto work = [&](std::int64_t first, std::int64_t last, int index) {
      for (std::int64_t row = first; row < last; ++row)
        run_row(job, row, block, end, !fit_first, workers[static_cast<std::size_t>(index)]);
    };
    pool.parallel(job.rows, kRowsAtATime, work);
  }
}

// tr(X H X^T), row by row.
double quadratic(const MatrixView& x, const std::vector<float>& hessian,
                 const MatrixProduct& product, std::vector<float>& scratch) {
  scratch.resize(static_cast<std::size_t>(x.rows * x.cols));
  product(x, {hessian.data(), x.cols, x.cols, x.cols}, scratch.data(), x.cols);
  double sum = 0;
  for (std::int64_t row = 0; row < x.rows; ++row)
    for (std::int64_t col = 0; col < x.cols; ++col)
      sum += static_cast<double>(x.row(row)[col]) *
             scratch[static_cast<std::size_t>(row * x.cols + col)];
  return sum;
}

Result<PackedWeight> pack(Job& job, ThreadPool& pool, std::string_view subject) {
  PACKSTONE_TRY(OwnedWeight owned, OwnedWeight::allocate(job.grid.id(), {job.rows, job.cols},
                                                         job.grid.params()));
  const auto planes = owned.pointers();
  std::vector<std::vector<std::uint32_t>> codes(static_cast<std::size_t>(pool.size()));
  for (auto& row : codes) row.resize(static_cast<std::size_t>(job.cols));
  auto work = [&](std::int64_t first, std::int64_t last, int worker) {
    auto& wide = codes[static_cast<std::size_t>(worker)];
    for (std::int64_t row = first; row < last; ++row) {
      std::copy_n(job.codes.begin() + row * job.cols, job.cols, wide.begin());
      pack_row(owned.id, owned.shape, owned.params, planes.data(), row, wide,
               {job.raw.data() + row * job.groups(), static_cast<std::size_t>(job.groups())});
    }
  };
  pool.parallel(job.rows, kPackUnitRows, work);
  return std::move(owned).release(subject);
}

Status check(const FeedbackInput& input, FormatId target, const FormatParams& params,
             const FeedbackOptions& options, std::string_view subject) {
  const auto cols = static_cast<std::size_t>(input.weight.cols);
  if (input.weight.rows < 1 || cols < 1 || input.hessian.size() % cols != 0 ||
      input.hessian.size() / cols != cols)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("a weight of [{}, {}] and {} values of its Hessian", input.weight.rows,
                            cols, input.hessian.size()),
                "a row, a column and a Hessian of [columns, columns]");
  if (const char* rule = layout_rule(target, {input.weight.rows, input.weight.cols}, params))
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} of [{}, {}], group {}", format_info(target).name,
                            input.weight.rows, cols, params.group_cols),
                rule);
  if (!(options.beta >= 0 && options.beta <= 1))
    return fail(ErrorCode::kInvalidInput, kWhere, subject, fmt::format("beta {}", options.beta),
                "a number from 0 to 1");
  return check_finite(input.weight, kWhere, subject);
}

Result<FeedbackResult> run(const FeedbackInput& input, const Grid& grid,
                           const FeedbackOptions& options, const MatrixProduct& product,
                           ThreadPool& pool, std::string_view subject) {
  Job job{input, options, grid, input.weight.rows, input.weight.cols, grid.unit_cols(),
          grid.group_cols(), {}, {}, {}, {}, {}, {}, {}, {}};
  const std::int64_t n = job.cols;
  const auto square = static_cast<std::size_t>(n * n);
  job.column = column_order(input, job.unit, options.order);
  std::vector<float> hessian(square);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      hessian[static_cast<std::size_t>(i * n + j)] =
          input.hessian[static_cast<std::size_t>(job.column[static_cast<std::size_t>(i)] * n +
                                                 job.column[static_cast<std::size_t>(j)])];
  PACKSTONE_TRY(Factor factor, inverse_factor(hessian, n, {input.damping}, pool, subject));
  job.upper = std::move(factor.upper);
  job.turned.resize(square);
  job.cost.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const float pivot = job.upper[static_cast<std::size_t>(i * n + i)];
    job.cost[static_cast<std::size_t>(job.column[static_cast<std::size_t>(i)])] =
        1.0f / (pivot * pivot);
    for (std::int64_t j = 0; j < n; ++j)
      job.turned[static_cast<std::size_t>(j * n + i)] =
          job.upper[static_cast<std::size_t>(i * n + j)];
  }
  job.errors.resize(static_cast<std::size_t>(job.rows * n));
  job.codes.resize(job.errors.size());
  job.raw.resize(static_cast<std::size_t>(job.rows * job.groups()));
  run_blocks(job, product, pool);
  PACKSTONE_TRY(PackedWeight weight, pack(job, pool, subject));
  PACKSTONE_TRY(const QuantizeReport report, measure(weight, input.weight, pool, subject));
  FeedbackResult result{std::move(weight), report, 0, factor.lambda};
  std::ranges::copy(input.hessian, hessian.begin());
  for (std::int64_t i = 0; i < n; ++i)
    hessian[static_cast<std::size_t>(i * n + i)] += static_cast<float>(factor.lambda);
  const double whole = quadratic(input.weight, hessian, product, job.upper);
  for (std::int64_t row = 0; row < job.rows; ++row) {
    float* rest = job.errors.data() + row * n;
    decode_row(result.weight, row, {rest, static_cast<std::size_t>(n)});
    for (std::int64_t col = 0; col < n; ++col) rest[col] = input.weight.row(row)[col] - rest[col];
  }
  const double lost =
      quadratic({job.errors.data(), job.rows, n, n}, hessian, product, job.upper);
  result.proxy_error = whole > 0 ? lost / whole : 0;
  return result;
}

}  // namespace

Result<FeedbackResult> quantize_with_feedback(const FeedbackInput& input, FormatId target,
                                              const FormatParams& params,
                                              const FeedbackOptions& options,
                                              const MatrixProduct& product, ThreadPool& pool,
                                              std::string_view subject) {
  PACKSTONE_CHECK_OK(check(input, target, params, options, subject));
  try {
    PACKSTONE_TRY(const Grid grid, Grid::make(target, params, input.weight.cols, subject));
    return run(input, grid, options, product, pool, subject);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "three copies of the weight and the Hessian in float32");
  }
}

}  // namespace packstone
