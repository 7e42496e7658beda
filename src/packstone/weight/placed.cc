#include "packstone/weight/placed.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "packstone/base/small_float.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

std::int64_t product_of(std::span<const std::int64_t> dims) {
  std::int64_t count = 1;
  for (const std::int64_t axis : dims) count *= axis;
  return count;
}

// Copies window [first, last) of an axis between a whole array and one that has only the window.
struct AxisWindow {
  std::int64_t outer, length, inner;  // of the whole: [outer, length, inner]
  std::int64_t first, last;
};

AxisWindow axis_window(std::span<const std::int64_t> dims, int axis, std::int64_t first,
                       std::int64_t last) {
  const auto at = static_cast<std::size_t>(axis);
  return {product_of(dims.first(at)), dims[at], product_of(dims.subspan(at + 1)), first, last};
}

template <class Copy>
void for_window(const AxisWindow& w, std::size_t bytes, Copy&& copy) {
  const auto run = static_cast<std::size_t>((w.last - w.first) * w.inner) * bytes;
  if (run == 0) return;
  for (std::int64_t i = 0; i < w.outer; ++i)
    copy(static_cast<std::size_t>((i * w.length + w.first) * w.inner) * bytes,
         static_cast<std::size_t>(i) * run, run);
}

// Whether the ends cut an axis of that length for so many devices.
bool ends_fit(const std::vector<std::int64_t>& ends, int devices, std::int64_t length) {
  return ends.size() == static_cast<std::size_t>(devices) + 1 && ends.front() == 0 &&
         ends.back() == length && std::ranges::is_sorted(ends);
}

constexpr int kDevicesMax = 4096;

Status check_placement(Placement& placement, std::span<const std::int64_t> dims,
                       std::string_view where, std::string_view subject) {
  if (placement.devices < 1 || placement.devices > kDevicesMax)
    return fail(ErrorCode::kInvalidInput, where, subject,
                fmt::format("{} devices", placement.devices), fmt::format("1 to {}", kDevicesMax));
  if (placement.axis == Placement::kWhole) return {};
  if (placement.axis < 0 || placement.axis >= static_cast<int>(dims.size()))
    return fail(ErrorCode::kInvalidInput, where, subject,
                fmt::format("axis {} of {}", placement.axis, dims_text(dims)),
                "an axis of the shape, counted from 0");
  return {};
}

Status check_ends(std::vector<std::int64_t>& ends, const Placement& placement,
                  std::span<const std::int64_t> dims, std::string_view where,
                  std::string_view subject) {
  const std::int64_t length = dims[static_cast<std::size_t>(placement.axis)];
  if (ends.empty()) ends = window_ends(length, placement.devices);
  if (!ends_fit(ends, placement.devices, length))
    return fail(ErrorCode::kInvalidInput, where, subject, "windows " + dims_text(ends),
                fmt::format("{} ends from 0 to {} in order", placement.devices + 1, length));
  return {};
}

// Rounds sums to the type of the result.
Array rounded(const Array& sums, ValueType type) {
  Array result = zeros(type, sums.dims);
  if (sums.type == ValueType::kF64)
    std::memcpy(result.bytes.data(), sums.bytes.data(), sums.bytes.size());
  else
    store_values(sums.as<float>(), type, result.bytes.data());
  return result;
}

template <class T>
void add(Array& into, const Array& term) {
  const auto to = into.as<T>();
  const auto from = term.as<T>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

constexpr std::string_view kPlace = "weight.place";

}  // namespace

std::vector<std::int64_t> window_ends(std::int64_t length, int devices, std::int64_t unit) {
  const std::int64_t units = ceil_div(length, unit);
  std::vector<std::int64_t> ends;
  for (int d = 0; d <= devices; ++d)
    ends.push_back(std::min(
        length, units / devices * d * unit + std::min<std::int64_t>(units % devices, d) * unit));
  return ends;
}

Result<Array> PlacedArray::whole() const {
  try {
    if (terms) {
      Array sum = shards[0];
      for (std::size_t i = 1; i < shards.size(); ++i)
        sum.type == ValueType::kF64 ? add<double>(sum, shards[i]) : add<float>(sum, shards[i]);
      return rounded(sum, type);
    }
    if (placement.axis == Placement::kWhole) return shards[0];
    Array result = zeros(type, dims);
    for (std::size_t d = 0; d < shards.size(); ++d)
      for_window(axis_window(dims, placement.axis, ends[d], ends[d + 1]), value_bytes(type),
                 [&](std::size_t whole_at, std::size_t window_at, std::size_t run) {
                   std::memcpy(result.bytes.data() + whole_at, shards[d].bytes.data() + window_at,
                               run);
                 });
    return result;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "weight.whole", "result", "too little memory",
                dims_text(dims) + " in memory");
  }
}

Result<PlacedArray> place_array(const ArrayView& x, Placement placement,
                                std::vector<std::int64_t> ends) {
  constexpr std::string_view kWhere = "weight.place_array";
  PACKSTONE_CHECK_OK(check_view(x, kWhere, "x"));
  PACKSTONE_CHECK_OK(check_placement(placement, x.dims, kWhere, "x"));
  try {
    PlacedArray placed{x.type, x.dims, placement, {}, false, {}};
    if (placement.axis == Placement::kWhole) {
      placed.shards.push_back({x.type, x.dims, {x.bytes.begin(), x.bytes.end()}});
      return placed;
    }
    PACKSTONE_CHECK_OK(check_ends(ends, placement, x.dims, kWhere, "x"));
    for (std::size_t d = 0; d + 1 < ends.size(); ++d) {
      Dims local = x.dims;
      local[static_cast<std::size_t>(placement.axis)] = ends[d + 1] - ends[d];
      Array& shard = placed.shards.emplace_back(zeros(x.type, std::move(local)));
      for_window(axis_window(x.dims, placement.axis, ends[d], ends[d + 1]), value_bytes(x.type),
                 [&](std::size_t whole_at, std::size_t window_at, std::size_t run) {
                   std::memcpy(shard.bytes.data() + window_at, x.bytes.data() + whole_at, run);
                 });
    }
    placed.ends = std::move(ends);
    return placed;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, "x", "too little memory",
                dims_text(x.dims) + " in memory");
  }
}

Result<PlacedIds> place_ids(const IdsView& ids, Placement placement,
                            std::vector<std::int64_t> ends) {
  constexpr std::string_view kWhere = "weight.place_ids";
  const auto count = element_count(ids.dims);
  if (!count || static_cast<std::size_t>(*count) != ids.values.size())
    return fail(ErrorCode::kInvalidInput, kWhere, "ids",
                fmt::format("{} values", ids.values.size()), "as many as " + dims_text(ids.dims));
  PACKSTONE_CHECK_OK(check_placement(placement, ids.dims, kWhere, "ids"));
  try {
    PlacedIds placed{ids.dims, placement, {}, {}};
    if (placement.axis == Placement::kWhole) {
      placed.shards.emplace_back(ids.values.begin(), ids.values.end());
      return placed;
    }
    PACKSTONE_CHECK_OK(check_ends(ends, placement, ids.dims, kWhere, "ids"));
    for (std::size_t d = 0; d + 1 < ends.size(); ++d) {
      auto& shard = placed.shards.emplace_back();
      for_window(axis_window(ids.dims, placement.axis, ends[d], ends[d + 1]), 1,
                 [&](std::size_t whole_at, std::size_t, std::size_t run) {
                   const auto from = ids.values.begin() + static_cast<std::ptrdiff_t>(whole_at);
                   shard.insert(shard.end(), from, from + static_cast<std::ptrdiff_t>(run));
                 });
    }
    placed.ends = std::move(ends);
    return placed;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, "ids", "too little memory",
                dims_text(ids.dims) + " in memory");
  }
}

}  // namespace packstone
