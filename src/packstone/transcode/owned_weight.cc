#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>

#include "packstone/format/registry.h"
#include "packstone/transcode/fill.h"

namespace packstone {
namespace {

constexpr std::int64_t kRowsAtATime = 16;

// Whether `rows` is empty or gives a row below `count` for each of `need` rows.
bool rows_in_range(std::span<const std::int32_t> rows, std::int64_t need, std::int64_t count) {
  if (rows.empty()) return true;
  return static_cast<std::int64_t>(rows.size()) == need &&
         std::ranges::all_of(rows, [&](std::int32_t row) { return row >= 0 && row < count; });
}

// Bytes of a row, of a format whose rows are runs of bytes of its only plane; else 0.
std::uint64_t row_stride(const PackedWeight& weight) {
  const Shape shape = weight.shape();
  return visit(weight.id(), [&]<class F>() -> std::uint64_t {
    if (F::kPlanes.size() != 1 || F::kTile.rows != 1 || shape.rows < 1 || shape.cols == 0) return 0;
    const std::uint64_t stride = weight.plane(0).size() / static_cast<std::uint64_t>(shape.rows);
    return F::tile_start(shape, weight.params(), 1, 0, 0) == 8 * stride ? stride : 0;
  });
}

void copy_row_bytes(const PackedWeight& source, std::span<const std::int32_t> row_order,
                    std::uint64_t stride, OwnedWeight& target, ThreadPool& pool) {
  auto work = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto from = static_cast<std::uint64_t>(
          row_order.empty() ? row : row_order[static_cast<std::size_t>(row)]);
      std::memcpy(target.planes[0].data() + static_cast<std::uint64_t>(row) * stride,
                  source.plane(0).data() + from * stride, stride);
    }
  };
  pool.parallel(source.shape().rows, kRowsAtATime, work);
}

}  // namespace

Result<OwnedWeight> OwnedWeight::allocate(FormatId id, Shape shape, const FormatParams& params) {
  constexpr std::string_view kWhere = "transcode.allocate";
  const FormatInfo& info = format_info(id);
  if (const char* rule = layout_rule(id, shape, params))
    return fail(ErrorCode::kInvalidInput, kWhere, info.name,
                fmt::format("[{}, {}], group {}", shape.rows, shape.cols, params.group_cols), rule);
  OwnedWeight weight{id, shape, params, {}};
  try {
    for (int plane = 0; plane < info.plane_count; ++plane)
      weight.planes.emplace_back(plane_bytes(id, plane, shape, params));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, info.name, "too little memory",
                fmt::format("[{}, {}] in memory", shape.rows, shape.cols));
  }
  return weight;
}

std::vector<unsigned char*> OwnedWeight::pointers() {
  std::vector<unsigned char*> pointers;
  for (auto& plane : planes) pointers.push_back(reinterpret_cast<unsigned char*>(plane.data()));
  return pointers;
}

Result<PackedWeight> OwnedWeight::release(std::string_view subject) && {
  auto owner = std::make_shared<const std::vector<std::vector<std::byte>>>(std::move(planes));
  std::vector<ByteSpan> spans(owner->begin(), owner->end());
  return PackedWeight::bind(id, shape, params, std::move(spans), owner, subject);
}

Result<PackedWeight> permute_rows(const PackedWeight& source,
                                  std::span<const std::int32_t> row_order, ThreadPool& pool) {
  const Shape shape = source.shape();
  if (!rows_in_range(row_order, shape.rows, shape.rows))
    return fail(ErrorCode::kInvalidInput, "transcode.permute_rows", "row order",
                fmt::format("{} entries or a row out of range", row_order.size()),
                fmt::format("{} rows in [0, {})", shape.rows, shape.rows));
  PACKSTONE_TRY(OwnedWeight target, OwnedWeight::allocate(source.id(), shape, source.params()));
  if (const std::uint64_t stride = row_stride(source); stride != 0) {
    copy_row_bytes(source, row_order, stride, target, pool);
    return std::move(target).release("permuted rows");
  }
  std::int64_t failed = -1;
  try {
    failed = copy_rows(source, row_order, MoveWay::kPlain, target, pool);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "transcode.permute_rows", source.format().name,
                "too little memory", "scratch of one row per thread");
  }
  if (failed >= 0)
    return fail(ErrorCode::kNotRepresentable, "transcode.permute_rows", source.format().name,
                fmt::format("row {}, whose parameters other rows share", failed),
                "rows that move together with those they share parameters with");
  return std::move(target).release("permuted rows");
}

namespace {

bool equal_planes(const PackedWeight& a, const PackedWeight& b) {
  if (a.id() != b.id() || a.params() != b.params()) return false;
  for (int plane = 0; plane < a.plane_count(); ++plane)
    if (!std::ranges::equal(a.plane(plane), b.plane(plane))) return false;
  return true;
}

void compare_row(std::span<const float> a, std::span<const float> b, std::int64_t row,
                 ValueComparison& result) {
  for (std::size_t col = 0; col < a.size(); ++col) {
    const float x = a[col], y = b[col];
    if (std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y)) continue;
    result.same_bits = false;
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    double difference = std::abs(static_cast<double>(x) - static_cast<double>(y));
    if (!std::isfinite(x) || !std::isfinite(y)) difference = INFINITY;
    const bool first = result.same_values;
    result.same_values = false;
    if (!first && difference <= result.max_abs) continue;
    result.max_abs = difference;
    result.row = row;
    result.col = static_cast<std::int64_t>(col);
  }
}

// Takes the larger difference; of equal ones the first in row order.
void merge(ValueComparison& into, const ValueComparison& from) {
  into.same_bits = into.same_bits && from.same_bits;
  if (from.same_values) return;
  const bool larger = into.same_values || from.max_abs > into.max_abs ||
                      (from.max_abs == into.max_abs &&
                       std::pair(from.row, from.col) < std::pair(into.row, into.col));
  into.same_values = false;
  if (!larger) return;
  into.max_abs = from.max_abs;
  into.row = from.row;
  into.col = from.col;
}

}  // namespace

ValueComparison compare_values(const PackedWeight& a, std::span<const std::int32_t> a_rows,
                               const PackedWeight& b, std::span<const std::int32_t> b_rows,
                               ThreadPool& pool) {
  const Shape shape = a.shape();
  if (shape != b.shape() || !rows_in_range(a_rows, shape.rows, shape.rows) ||
      !rows_in_range(b_rows, shape.rows, shape.rows))
    return {false, false, INFINITY, -1, -1};
  if (a_rows.empty() && b_rows.empty() && equal_planes(a, b)) return {};
  struct alignas(64) Scratch {
    std::vector<float> a, b;
    ValueComparison result;
  };
  std::vector<Scratch> scratch(static_cast<std::size_t>(pool.size()));
  for (Scratch& one : scratch) {
    one.a.resize(static_cast<std::size_t>(shape.cols));
    one.b.resize(static_cast<std::size_t>(shape.cols));
  }
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    Scratch& mine = scratch[static_cast<std::size_t>(worker)];
    for (std::int64_t row = begin; row < end; ++row) {
      const auto at = static_cast<std::size_t>(row);
      decode_row(a, a_rows.empty() ? row : a_rows[at], mine.a);
      decode_row(b, b_rows.empty() ? row : b_rows[at], mine.b);
      ValueComparison one;
      compare_row(mine.a, mine.b, row, one);
      merge(mine.result, one);
    }
  };
  pool.parallel(shape.rows, kRowsAtATime, work);
  ValueComparison result;
  for (const Scratch& one : scratch) merge(result, one.result);
  return result;
}

}  // namespace packstone
