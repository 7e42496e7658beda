#include "packstone/quantize/factor.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "packstone/quantize/product_f64.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "quantize.inverse_factor";
constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kRowsAtATime = 16;

// A square matrix of doubles, row by row.
struct Square {
  std::int64_t n;
  std::vector<double> values;
  double* row(std::int64_t i) { return values.data() + i * n; }
};

// R with R R^T = A, both in the upper triangle of `a`, from the last column to the first. False
// where A is not positive definite.
bool cholesky_upper(Square& a, ThreadPool& pool) {
  const std::int64_t n = a.n;
  for (std::int64_t end = n; end > 0; end -= std::min(end, kBlock)) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - kBlock), width = end - begin;
    // What the later columns explain of this block of columns, for all rows above its end.
    auto update = [&](std::int64_t first, std::int64_t last, int) {
      subtract_product_f64(a.row(first) + end, last - first, n, a.row(begin) + end, width, n,
                           n - end, a.row(first) + begin, n);
    };
    if (end < n) pool.parallel(end, kRowsAtATime, update);
    for (std::int64_t k = end - 1; k >= begin; --k) {
      double* pivot = a.row(k);
      double sum = pivot[k];
      for (std::int64_t m = k + 1; m < end; ++m) sum -= pivot[m] * pivot[m];
      if (!(sum > 0) || !std::isfinite(sum)) return false;
      pivot[k] = std::sqrt(sum);
      const double inverse = 1.0 / pivot[k];
      auto column = [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t i = first; i < last; ++i) {
          double* row = a.row(i);
          double rest = row[k];
          for (std::int64_t m = k + 1; m < end; ++m) rest -= row[m] * pivot[m];
          row[k] = rest * inverse;
        }
      };
      if (k < 1) continue;
      if (k < 256)
        column(0, k, 0);
      else
        pool.parallel(k, 64, column);
    }
  }
  return true;
}

// Column blocks of U = R^-1: U[i, j] R[j, j] = delta(i, j) - sum_{m < j} U[i, m] R[m, j].
void invert_upper(Square& r, Square& u, ThreadPool& pool) {
  const std::int64_t n = r.n;
  std::vector<double> turned(static_cast<std::size_t>(kBlock * n));
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, n), width = end - begin;
    for (std::int64_t m = 0; m < end; ++m)
      for (std::int64_t j = begin; j < end; ++j)
        turned[static_cast<std::size_t>((j - begin) * n + m)] = m <= j ? r.row(m)[j] : 0;
    auto rows = [&](std::int64_t first, std::int64_t last, int) {
      if (begin > 0 && first < begin)
        subtract_product_f64(u.row(first), std::min(last, begin) - first, n, turned.data(), width,
                             n, begin, u.row(first) + begin, n);
      for (std::int64_t i = first; i < last; ++i) {
        double* row = u.row(i);
        for (std::int64_t j = std::max(begin, i); j < end; ++j) {
          const double* column = turned.data() + (j - begin) * n;
          double sum = (i == j ? 1.0 : 0.0) + row[j];
          for (std::int64_t m = std::max(begin, i); m < j; ++m) sum -= row[m] * column[m];
          row[j] = sum / column[j];
        }
      }
    };
    pool.parallel(end, kRowsAtATime, rows);
  }
}

Status check(std::span<const float> hessian, std::int64_t n, const Damping& damping,
             std::string_view subject) {
  if (!(damping.fraction > 0 && damping.fraction < 1))
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("damping {}", damping.fraction), "a number between 0 and 1");
  if (n < 1 || hessian.size() / static_cast<std::size_t>(n) != static_cast<std::size_t>(n) ||
      hessian.size() % static_cast<std::size_t>(n) != 0)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} values for {} channels", hessian.size(), n), "a square matrix");
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      if (!std::isfinite(hessian[static_cast<std::size_t>(i * n + j)]))
        return fail(ErrorCode::kNotRepresentable, kWhere, subject,
                    fmt::format("a Hessian that is not finite at [{}, {}]", i, j),
                    "finite activations");
  return {};
}

Result<Factor> factor_of(std::span<const float> hessian, std::int64_t n, const Damping& damping,
                         ThreadPool& pool, std::string_view subject) {
  double sum = 0, largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = hessian[static_cast<std::size_t>(i * n + i)];
    sum += value;
    largest = std::max(largest, value);
  }
  const double mean = sum / static_cast<double>(n);
  Square r{n, std::vector<double>(static_cast<std::size_t>(n * n))};
  Factor factor;
  double fraction = damping.fraction;
  for (bool done = false; !done; ++factor.tries) {
    factor.lambda = std::max({fraction * mean, 1e-6 * largest, 1e-12});
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i; j < n; ++j)
        r.row(i)[j] = hessian[static_cast<std::size_t>(j * n + i)];
      r.row(i)[i] += factor.lambda;
    }
    done = cholesky_upper(r, pool);
    if (done) break;
    fraction += damping.step;
    if (!(damping.step > 0) || fraction >= 1)
      return fail(ErrorCode::kNotRepresentable, kWhere, subject,
                  fmt::format("a Hessian that is not positive definite with {} added to its "
                              "diagonal",
                              factor.lambda),
                  "a positive definite one", "raise the damping, or give more calibration text");
  }
  Square u{n, std::vector<double>(static_cast<std::size_t>(n * n))};
  invert_upper(r, u, pool);
  factor.upper.resize(u.values.size());
  for (std::size_t i = 0; i < u.values.size(); ++i)
    factor.upper[i] = static_cast<float>(u.values[i]);
  return factor;
}

}  // namespace

Result<Factor> inverse_factor(std::span<const float> hessian, std::int64_t n,
                              const Damping& damping, ThreadPool& pool, std::string_view subject) {
  PACKSTONE_CHECK_OK(check(hessian, n, damping, subject));
  try {
    return factor_of(hessian, n, damping, pool, subject);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                fmt::format("{} MiB", (n * n) >> 16));
  }
}

}  // namespace packstone
