#include "packstone/cli/vectors.h"

#include "packstone/transcode/unpack.h"

namespace packstone::cli {

std::vector<float> decode_all(const PackedWeight& weight) {
  const auto rows = static_cast<std::size_t>(weight.shape().rows);
  const auto cols = static_cast<std::size_t>(weight.shape().cols);
  std::vector<float> values(rows * cols);
  for (std::size_t row = 0; row < rows; ++row)
    decode_row(weight, static_cast<std::int64_t>(row), std::span(values).subspan(row * cols, cols));
  return values;
}

std::vector<std::int32_t> compose_rows(std::span<const std::int32_t> source_stored,
                                       std::span<const std::int32_t> target_order) {
  if (target_order.empty()) return {source_stored.begin(), source_stored.end()};
  std::vector<std::int32_t> rows(target_order.begin(), target_order.end());
  if (!source_stored.empty())
    for (std::int32_t& row : rows) row = source_stored[static_cast<std::size_t>(row)];
  bool identity = true;
  for (std::size_t i = 0; i < rows.size(); ++i) identity &= rows[i] == static_cast<std::int32_t>(i);
  if (identity) rows.clear();
  return rows;
}

std::vector<float> in_order(std::vector<float> values, std::span<const std::int32_t> order) {
  if (order.empty()) return values;
  std::vector<float> ordered(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ordered[i] = values[static_cast<std::size_t>(order[i])];
  return ordered;
}

}  // namespace packstone::cli
