#include "packstone/quantize/measure.h"

#include <cmath>
#include <new>
#include <vector>

#include "packstone/base/check.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

constexpr std::int64_t kRowsAtATime = 8;

struct RowSums {
  double error = 0, weight = 0, max_abs = 0;
  std::int64_t col = -1, lost_groups = 0, not_finite = -1;
};

RowSums sums_of_row(const PackedWeight& weight, const float* values, std::int64_t row,
                    std::span<float> decoded, std::span<GroupValues> groups) {
  RowSums sums;
  decode_row(weight, row, decoded);
  for (std::size_t col = 0; col < decoded.size(); ++col) {
    if (!std::isfinite(decoded[col])) {
      sums.not_finite = static_cast<std::int64_t>(col);
      return sums;
    }
    const double value = values[col];
    const double error = decoded[col] - value;
    sums.error += error * error;
    sums.weight += value * value;
    if (std::abs(error) > sums.max_abs) {
      sums.max_abs = std::abs(error);
      sums.col = static_cast<std::int64_t>(col);
    }
  }
  if (weight.params().act_order || groups.empty()) return sums;
  group_values_row(weight, row, groups);
  const auto width = static_cast<std::size_t>(group_cols(weight.id(), weight.params()));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    bool lost = false;
    for (std::size_t col = g * width; col < std::min((g + 1) * width, decoded.size()); ++col)
      lost = lost || (groups[g].scale == 0 && values[col] != 0);
    sums.lost_groups += lost;
  }
  return sums;
}

}  // namespace

Result<QuantizeReport> measure(const PackedWeight& weight, const MatrixView& values,
                               ThreadPool& pool, std::string_view subject) {
  const Shape shape = weight.shape();
  PACKSTONE_ASSERT(values.rows == shape.rows && values.cols == shape.cols);
  const std::int64_t width = group_cols(weight.id(), weight.params());
  std::vector<RowSums> rows;
  try {
    rows.resize(static_cast<std::size_t>(shape.rows));
    std::vector<std::vector<float>> decoded(static_cast<std::size_t>(pool.size()));
    std::vector<std::vector<GroupValues>> groups(decoded.size());
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      decoded[i].resize(static_cast<std::size_t>(shape.cols));
      groups[i].resize(width > 0 ? static_cast<std::size_t>(ceil_div(shape.cols, width)) : 0);
    }
    auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
      const auto w = static_cast<std::size_t>(worker);
      for (std::int64_t row = begin; row < end; ++row)
        rows[static_cast<std::size_t>(row)] =
            sums_of_row(weight, values.row(row), row, decoded[w], groups[w]);
    };
    pool.parallel(shape.rows, kRowsAtATime, work);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "quantize.measure", subject, "too little memory",
                "one row per thread");
  }
  QuantizeReport report;
  double error = 0, total = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const RowSums& sums = rows[row];
    if (sums.not_finite >= 0)
      return fail(ErrorCode::kNotRepresentable, "quantize.measure", subject,
                  fmt::format("no finite number for {} at row {}, column {}",
                              values.row(static_cast<std::int64_t>(row))[sums.not_finite], row,
                              sums.not_finite),
                  fmt::format("values within the range of the scales of {}", weight.format().name),
                  "use mlx-affine with bfloat16 or float32 scales");
    error += sums.error;
    total += sums.weight;
    report.lost_groups += sums.lost_groups;
    if (sums.max_abs > report.max_abs) {
      report.max_abs = sums.max_abs;
      report.row = static_cast<std::int64_t>(row);
      report.col = sums.col;
    }
  }
  if (total > 0) report.relative_rms = std::sqrt(error / total);
  return report;
}

Status check_finite(const MatrixView& values, std::string_view where, std::string_view subject) {
  for (std::int64_t row = 0; row < values.rows; ++row)
    for (std::int64_t col = 0; col < values.cols; ++col)
      if (const float value = values.row(row)[col]; !std::isfinite(value))
        return fail(ErrorCode::kNotRepresentable, where, subject,
                    fmt::format("{} at row {}, column {}", value, row, col), "finite values",
                    "the source is damaged or was saved after an overflow");
  return {};
}

}  // namespace packstone
