// How far a packed weight is from the values it was made of.
#pragma once

#include "packstone/base/matrix_view.h"
#include "packstone/quantize/quantizer.h"

namespace packstone {

// measure(weight, values, pool): decodes every row. Shapes: values [rows, cols].
// Exact: sums in float64, row by row: same bits for any thread count. Errors: kNotRepresentable
// where a value decodes to no finite number; kExhausted. Cost: one row per thread.
Result<QuantizeReport> measure(const PackedWeight& weight, const MatrixView& values,
                               ThreadPool& pool, std::string_view subject);

// check_finite(values, where, target, subject): kNotRepresentable for the first value, in row
// order, that is not finite. Errors: that.
Status check_finite(const MatrixView& values, std::string_view where, FormatId target,
                    std::string_view subject);

}  // namespace packstone
