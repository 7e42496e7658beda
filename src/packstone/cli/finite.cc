#include "packstone/cli/finite.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "packstone/cli/layouts.h"
#include "packstone/transcode/unpack.h"

namespace packstone::cli {
namespace {

constexpr std::int64_t kRowsAtATime = 8;

// What was seen of some rows. Counts add up and the first row wins, so that any split of the rows
// gives the same answer.
struct Seen {
  std::int64_t count = 0;
  std::int64_t row = std::numeric_limits<std::int64_t>::max();
  std::int64_t at = 0;  // column, or group of a packed tensor
  float value = 0;
  bool offset = false;

  void merge(const Seen& other) {
    const std::int64_t sum = count + other.count;
    if (other.row < row) *this = other;
    count = sum;
  }
};

// By the pattern: a loop of this keeps to whole vectors.
bool finite(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) != 0x7F800000u;
}

std::string value_text(float value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "infinity" : "-infinity";
}

struct Scratch {
  std::vector<float> values;
  std::vector<RawParams> raw;
  std::vector<GroupValues> groups;
};

Seen look_at_values(const PackedWeight& weight, std::int64_t stored, Scratch& scratch) {
  decode_row(weight, stored, scratch.values);
  Seen seen;
  for (const float value : scratch.values) seen.count += finite(value) ? 0 : 1;
  if (seen.count == 0) return seen;
  while (finite(scratch.values[static_cast<std::size_t>(seen.at)])) ++seen.at;
  seen.value = scratch.values[static_cast<std::size_t>(seen.at)];
  return seen;
}

Seen look_at_params(const PackedWeight& weight, std::int64_t stored, Scratch& scratch) {
  raw_params_row(weight, stored, scratch.raw);
  decode_params(weight.id(), weight.params(), scratch.raw, scratch.groups);
  Seen seen;
  for (std::size_t group = 0; group < scratch.groups.size(); ++group) {
    const GroupValues& values = scratch.groups[group];
    if (finite(values.scale) && finite(values.offset)) continue;
    if (seen.count++ > 0) continue;
    seen.at = static_cast<std::int64_t>(group);
    seen.offset = finite(values.scale);
    seen.value = seen.offset ? values.offset : values.scale;
  }
  return seen;
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string problem(const CheckpointTensor& tensor, const Seen& seen) {
  const std::string value = value_text(seen.value);
  if (!is_float_format(tensor.weight.id()))
    return fmt::format(
        "{}: {} {} at row {}, group {}; {} with a scale or offset that is not finite", tensor.name,
        seen.offset ? "offset" : "scale", value, seen.row, seen.at, counted(seen.count, "group"));
  // A vector is one row, or one column where its elements have an order.
  const bool vector = tensor.shape.size() == 1;
  return fmt::format("{}: value {} at row {}, column {}; {} not finite", tensor.name, value,
                     vector ? 0 : seen.row, vector ? seen.row + seen.at : seen.at,
                     counted(seen.count, "value"));
}

}  // namespace

std::optional<std::string> nonfinite_problem(const CheckpointTensor& tensor, ThreadPool& pool) {
  const PackedWeight& weight = tensor.weight;
  const bool values = is_float_format(weight.id());
  const std::vector<std::int32_t> rows = tensor.stored_rows();
  const auto cols = static_cast<std::size_t>(weight.shape().cols);
  const auto groups = static_cast<std::size_t>(
      ceil_div(weight.shape().cols, group_cols(weight.id(), weight.params())));
  Scratch empty;
  if (values) {
    empty.values.resize(cols);
  } else {
    empty.raw.resize(groups);
    empty.groups.resize(groups);
  }
  std::vector<Scratch> scratch(static_cast<std::size_t>(pool.size()), empty);
  std::vector<Seen> seen(scratch.size());
  auto look = [&](std::int64_t begin, std::int64_t end, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t stored = rows.empty() ? row : rows[static_cast<std::size_t>(row)];
      Seen one = values ? look_at_values(weight, stored, scratch[w])
                        : look_at_params(weight, stored, scratch[w]);
      if (one.count == 0) continue;
      one.row = row;
      seen[w].merge(one);
    }
  };
  pool.parallel(weight.shape().rows, kRowsAtATime, look);
  Seen all;
  for (const Seen& one : seen) all.merge(one);
  if (all.count == 0) return std::nullopt;
  return problem(tensor, all);
}

}  // namespace packstone::cli
