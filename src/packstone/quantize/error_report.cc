#include "packstone/quantize/error_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace packstone {

bool check_finite(std::span<const float> values, std::int64_t row, ValueFault& fault) {
  for (std::size_t col = 0; col < values.size(); ++col)
    if (!std::isfinite(values[col])) {
      fault = {row, static_cast<std::int64_t>(col), values[col], false};
      return false;
    }
  return true;
}

bool add_errors(std::span<const float> values, std::span<const float> decoded, std::int64_t row,
                QuantizeReport& report, ErrorSums& sums, ValueFault& fault) {
  for (std::size_t col = 0; col < values.size(); ++col) {
    const double value = values[col];
    if (!std::isfinite(decoded[col])) {
      fault = {row, static_cast<std::int64_t>(col), values[col], true};
      return false;
    }
    const double error = static_cast<double>(decoded[col]) - value;
    sums.error += error * error;
    sums.weight += value * value;
    if (std::abs(error) <= report.max_abs) continue;
    report.max_abs = std::abs(error);
    report.row = row;
    report.col = static_cast<std::int64_t>(col);
  }
  return true;
}

bool is_lost(std::span<const float> values, const GroupValues& group) {
  return group.scale == 0 && group.offset == 0 &&
         std::ranges::any_of(values, [](float value) { return value != 0; });
}

void merge_reports(QuantizeReport& into, const QuantizeReport& from) {
  into.lost_groups += from.lost_groups;
  const bool earlier = std::pair(from.row, from.col) < std::pair(into.row, into.col);
  if (from.row < 0 || from.max_abs < into.max_abs || (from.max_abs == into.max_abs && !earlier))
    return;
  into.max_abs = from.max_abs;
  into.row = from.row;
  into.col = from.col;
}

double relative_rms(std::span<const ErrorSums> rows) {
  ErrorSums total;
  for (const ErrorSums& row : rows) {
    total.error += row.error;
    total.weight += row.weight;
  }
  return total.weight > 0 ? std::sqrt(total.error / total.weight) : 0;
}

Status fault_status(const ValueFault& fault, std::string_view where, FormatId target,
                    std::string_view subject) {
  if (!fault.found()) return {};
  const std::string place =
      fmt::format("{} at row {}, column {}", fault.value, fault.row, fault.col);
  if (!fault.overflow)
    return fail(ErrorCode::kNotRepresentable, where, subject, place, "finite values",
                "the source is damaged or was saved after an overflow");
  return fail(ErrorCode::kNotRepresentable, where, subject, place,
              fmt::format("values within the range of the scales of {}", format_info(target).name),
              "use mlx-affine with bfloat16 or float32 scales");
}

}  // namespace packstone
