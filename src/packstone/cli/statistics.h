// Small statistics of repeated measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace packstone::cli {

// The middle value, or the mean of the two in the middle; 0 of nothing.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace packstone::cli
