// What the quantizers share: the comparison of a quantized row with its source, the first value
// that forbids a result, and the report of both.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "packstone/quantize/quantizer.h"

namespace packstone {

// The first value, in row order, that forbids the result.
struct ValueFault {
  std::int64_t row = std::numeric_limits<std::int64_t>::max();
  std::int64_t col = 0;
  float value = 0;
  bool overflow = false;  // the value is finite, what would be stored for it is not
  bool found() const { return row != std::numeric_limits<std::int64_t>::max(); }
};

// Sums of one row. Rows are added in order afterwards, so that no sum depends on the threads.
struct ErrorSums {
  double error = 0, weight = 0;  // sum i (w' - w)^2, sum i w^2
};

// check_finite(values, row, fault): false, with the place, where a value is NaN or infinite.
bool check_finite(std::span<const float> values, std::int64_t row, ValueFault& fault);

// add_errors(values, decoded, row, report, sums, fault): adds the row's errors to the sums and to
// the largest error of the report; false, with the place, at the first value that decodes to no
// finite number.
bool add_errors(std::span<const float> values, std::span<const float> decoded, std::int64_t row,
                QuantizeReport& report, ErrorSums& sums, ValueFault& fault);

// is_lost(values, group): whether the stored parameters of a group make all its values zero
// although one is not.
bool is_lost(std::span<const float> values, const GroupValues& group);

// merge_reports(into, from): takes the larger error, of equal ones the first in row order; counts
// add.
void merge_reports(QuantizeReport& into, const QuantizeReport& from);

// relative_rms(rows): sqrt(sum error / sum weight), added row by row in order; 0 of no weight.
double relative_rms(std::span<const ErrorSums> rows);

// fault_status(fault, where, target, subject): kNotRepresentable naming the value, or no error.
Status fault_status(const ValueFault& fault, std::string_view where, FormatId target,
                    std::string_view subject);

}  // namespace packstone
