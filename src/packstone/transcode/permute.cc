#include "packstone/transcode/permute.h"

#include <algorithm>
#include <limits>
#include <new>

#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/transcode.h"

namespace packstone {
namespace {

// Rows whose codes are read and written together, a part of the unit that one worker packs alone.
constexpr std::int64_t kBlockRows = 16;
static_assert(kPackUnitRows % kBlockRows == 0);

// The stored group of every column; of a format with a plane of group numbers.
class GroupNumbers {
 public:
  explicit GroupNumbers(const PackedWeight& weight)
      : bytes_(weight.plane_pointers()[static_cast<std::size_t>(weight.format().index_plane)]) {}
  std::size_t operator[](std::size_t col) const { return read_bits(bytes_, 32 * col, 32); }

 private:
  const unsigned char* bytes_;
};

// Whether `order` has every column once, and each where its group's columns stand.
bool puts_groups_in_place(const PackedWeight& source, std::span<const std::int32_t> order) {
  const auto cols = static_cast<std::size_t>(source.shape().cols);
  const auto width = static_cast<std::size_t>(group_cols(source.id(), source.params()));
  const GroupNumbers groups(source);
  std::vector<bool> seen(cols);
  if (order.size() != cols) return false;
  for (std::size_t i = 0; i < cols; ++i) {
    if (order[i] < 0) return false;
    const auto col = static_cast<std::size_t>(order[i]);
    if (col >= cols || seen[col] || groups[col] != i / width) return false;
    seen[col] = true;
  }
  return true;
}

struct Scratch {
  std::vector<std::uint8_t> source, target;
};

void move_block(const ConstPlanes& from, const MutablePlanes& to, const FormatOps& ops,
                std::span<const std::int32_t> order, CodeBlock block, Scratch& scratch) {
  ops.read_code_bytes(from, block, scratch.source.data());
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const std::uint8_t* codes = scratch.source.data() + row * block.stride;
    std::uint8_t* moved = scratch.target.data() + row * block.stride;
    for (std::size_t i = 0; i < order.size(); ++i) moved[i] = codes[order[i]];
  }
  ops.write_code_bytes(to, block, scratch.target.data());
}

void move_codes(const PackedWeight& source, std::span<const std::int32_t> order,
                OwnedWeight& target, ThreadPool& pool) {
  const Shape shape = source.shape();
  const auto from = source.plane_pointers();
  const auto to = target.pointers();
  const ConstPlanes source_bytes{from.data(), shape, source.params()};
  const MutablePlanes target_bytes{to.data(), shape, target.params};
  const FormatOps& ops = format_ops(source.id());
  const auto size = static_cast<std::size_t>(kBlockRows * shape.cols);
  std::vector<Scratch> scratch(static_cast<std::size_t>(pool.size()),
                               {std::vector<std::uint8_t>(size), std::vector<std::uint8_t>(size)});
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::int64_t last = std::min(end * kPackUnitRows, shape.rows);
    for (std::int64_t row = begin * kPackUnitRows; row < last; row += kBlockRows)
      move_block(source_bytes, target_bytes, ops, order,
                 {row, std::min(kBlockRows, last - row), 0, shape.cols, shape.cols},
                 scratch[static_cast<std::size_t>(worker)]);
  };
  pool.parallel(ceil_div(shape.rows, kPackUnitRows), 1, work);
}

// The planes of the target but its codes.
void fill_planes(const PackedWeight& source, OwnedWeight& target) {
  const int index = source.format().index_plane;
  for (int plane = 1; plane < source.plane_count(); ++plane)
    if (plane != index)
      std::ranges::copy(source.plane(plane),
                        target.planes[static_cast<std::size_t>(plane)].begin());
  unsigned char* numbers = target.pointers()[static_cast<std::size_t>(index)];
  const std::int64_t width = group_cols(target.id, target.params);
  for (std::int64_t col = 0; col < target.shape.cols; ++col)
    write_bits(numbers, 32 * static_cast<std::uint64_t>(col), 32,
               static_cast<std::uint32_t>(col / width));
}

Result<std::vector<std::int32_t>> sort_by_group(const PackedWeight& weight,
                                                std::string_view subject) {
  const auto cols = static_cast<std::size_t>(weight.shape().cols);
  const auto width = static_cast<std::size_t>(group_cols(weight.id(), weight.params()));
  const GroupNumbers groups(weight);
  std::vector<std::size_t> next((cols + width - 1) / width);
  for (std::size_t col = 0; col < cols; ++col) ++next[groups[col]];
  for (std::size_t group = 0; group < next.size(); ++group) {
    const std::size_t place = std::min(width, cols - group * width);
    if (next[group] != place)
      return fail(ErrorCode::kNotRepresentable, "transcode.sorted_columns", subject,
                  fmt::format("{} columns of group {}", next[group], group),
                  fmt::format("{}, as groups of {} have them", place, width),
                  "keep the group numbers");
    next[group] = group * width;
  }
  std::vector<std::int32_t> order(cols);
  for (std::size_t col = 0; col < cols; ++col)
    order[next[groups[col]]++] = static_cast<std::int32_t>(col);
  return order;
}

}  // namespace

Result<std::vector<std::int32_t>> sorted_columns(const PackedWeight& weight,
                                                 std::string_view subject) {
  constexpr std::string_view kWhere = "transcode.sorted_columns";
  if (weight.format().index_plane < 0 || !weight.params().act_order)
    return std::vector<std::int32_t>();
  if (weight.shape().cols > std::numeric_limits<std::int32_t>::max())
    return fail(ErrorCode::kUnsupported, kWhere, subject,
                fmt::format("{} columns", weight.shape().cols), "fewer than 2^31");
  try {
    return sort_by_group(weight, subject);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "12 bytes for each column");
  }
}

Result<PackedWeight> permute_columns(const PackedWeight& source,
                                     std::span<const std::int32_t> order, ThreadPool& pool) {
  constexpr std::string_view kWhere = "transcode.permute_columns";
  const FormatInfo& info = source.format();
  if (info.index_plane < 0 || format_ops(source.id()).read_code_bytes == nullptr)
    return fail(ErrorCode::kInvalidInput, kWhere, info.name, "no group numbers",
                "a layout that stores them");
  try {
    if (!puts_groups_in_place(source, order))
      return fail(ErrorCode::kInvalidInput, kWhere, "column order",
                  fmt::format("{} entries or a column of another group", order.size()),
                  fmt::format("{} columns, sorted by group", source.shape().cols));
    FormatParams params = source.params();
    params.act_order = false;
    PACKSTONE_TRY(OwnedWeight target, OwnedWeight::allocate(source.id(), source.shape(), params));
    fill_planes(source, target);
    move_codes(source, order, target, pool);
    return std::move(target).release("permuted columns");
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, info.name, "too little memory",
                "scratch of 16 rows per thread");
  }
}

}  // namespace packstone
