#include "packstone/cli/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "packstone/checkpoint/value_rule.h"
#include "packstone/cli/vectors.h"

namespace packstone::cli {
namespace {

bool equal_planes(const PackedWeight& a, const PackedWeight& b) {
  if (a.id() != b.id() || a.shape() != b.shape() || !(a.params() == b.params())) return false;
  for (int i = 0; i < a.plane_count(); ++i)
    if (!std::ranges::equal(a.plane(i), b.plane(i))) return false;
  return true;
}

// A vector's values in Hugging Face order.
std::vector<float> vector_values(const CheckpointTensor& tensor) {
  std::vector<float> values = decode_all(tensor.weight);
  const std::vector<std::int32_t> rows = tensor.stored_rows();
  return rows.size() == values.size() ? in_order(std::move(values), rows) : values;
}

ValueComparison compare_vectors(const CheckpointTensor& a, std::span<const std::int32_t> a_order,
                                const CheckpointTensor& b) {
  std::vector<float> x = in_order(vector_values(a), a_order), y = vector_values(b);
  if (a.value_rule != b.value_rule) {  // adding 1 is never refused
    static_cast<void>(apply_value_rule(a.value_rule, ValueRule::kPlusOne, x, a.name));
    static_cast<void>(apply_value_rule(b.value_rule, ValueRule::kPlusOne, y, b.name));
  }
  ValueComparison result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double difference = std::isfinite(x[i]) && std::isfinite(y[i])
                                  ? std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]))
                                  : std::numeric_limits<double>::infinity();
    if (result.same_values || difference > result.max_abs) {
      result.max_abs = difference;
      result.row = 0;
      result.col = static_cast<std::int64_t>(i);
    }
    result.same_values = false;
  }
  return result;
}

// Of a float vector its bits as float32; formats of equal bits have equal values only for equal
// patterns.
std::string vector_fault(const CheckpointTensor& source, const CheckpointTensor& target) {
  const std::vector<float> want = vector_values(source);
  std::vector<float> have = vector_values(target);
  const Status applied = apply_value_rule(target.value_rule, source.value_rule, have, source.name);
  if (!applied) return applied.error().message;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::bit_cast<std::uint32_t>(want[i]) != std::bit_cast<std::uint32_t>(have[i]))
      return fmt::format("value {} has other bits", i);
  return {};
}

// For each stored row of the source the stored row of the target that holds it; empty when equal.
std::vector<std::int32_t> back_order(const CheckpointTensor& source,
                                     const CheckpointTensor& target) {
  const std::vector<std::int32_t> from = source.stored_rows(), to = target.stored_rows();
  if (from.empty()) return to;
  std::vector<std::int32_t> order(from.size());
  for (std::size_t row = 0; row < from.size(); ++row)
    order[static_cast<std::size_t>(from[row])] =
        to.empty() ? static_cast<std::int32_t>(row) : to[row];
  for (std::size_t row = 0; row < order.size(); ++row)
    if (order[row] != static_cast<std::int32_t>(row)) return order;
  return {};
}

}  // namespace

bool equal_storage(const CheckpointTensor& a, const CheckpointTensor& b) {
  return a.row_order == b.row_order && a.order_head_dim == b.order_head_dim &&
         a.value_rule == b.value_rule && equal_planes(a.weight, b.weight);
}

ValueComparison compare_tensors(const CheckpointTensor& a, const CheckpointTensor& b,
                                ThreadPool& pool) {
  if (a.shape.size() == 1) return compare_vectors(a, {}, b);
  return compare_values(a.weight, a.stored_rows(), b.weight, b.stored_rows(), pool);
}

Result<ValueComparison> compare_tensors(const CheckpointTensor& a, const ChannelOrder& channels,
                                        const CheckpointTensor& b, ThreadPool& pool) {
  if (a.shape.size() == 1) return compare_vectors(a, channels.rows(), b);
  PACKSTONE_TRY(const PackedWeight sorted, with_columns(a.weight, channels, pool));
  return compare_values(sorted, compose_rows(a.stored_rows(), channels.rows()), b.weight,
                        b.stored_rows(), pool);
}

std::string way_back_fault(const CheckpointTensor& source, const CheckpointTensor& target,
                           ThreadPool& pool) {
  const PackedWeight& want = source.weight;
  const PackedWeight& from = target.weight;
  if (source.shape.size() == 1) {
    if (want.id() != from.id()) return "another float type";
    return vector_fault(source, target);
  }
  const std::vector<std::int32_t> order = back_order(source, target);
  const TranscodeTarget back{want.id(), want.params().group_cols, want.params().metadata};
  TranscodePlan plan;
  plan.verdict = Verdict::kSameBytes;
  plan.params = want.params();
  if (from.id() != want.id() || !(from.params() == want.params()))
    plan = plan_transcode(from, back, pool, order);
  if (plan.verdict == Verdict::kRefused) return plan.reason;
  const Result<PackedWeight> made = transcode(from, plan, back, order, pool);
  if (!made) return made.error().message;
  if (made->id() != want.id() || !(made->params() == want.params()))
    return "another layout than the source's";
  for (int plane = 0; plane < want.plane_count(); ++plane) {
    const ByteSpan a = want.plane(plane), b = made->plane(plane);
    const auto [at, unused] = std::ranges::mismatch(a, b);
    if (at != a.end() || a.size() != b.size())
      return fmt::format("byte {} of plane {} differs", at - a.begin(), plane);
  }
  return {};
}

}  // namespace packstone::cli
