#include "packstone/weight/slab.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "packstone/transcode/transcode.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

// Bytes of the columns of one row in every plane.
struct RowBytes {
  std::array<std::uint64_t, kPlanesMax> stride{}, first{}, count{};
};

// Whether row `row` and column `col` of the shape start where `bytes` says, in every plane.
template <CodedFormat F>
bool starts_at(Shape shape, const FormatParams& params, std::int64_t row, std::int64_t col,
               const RowBytes& bytes) {
  const Shape one{1, shape.cols};
  const auto start = [&](int plane) {
    const auto p = static_cast<std::size_t>(plane);
    return 8 * (static_cast<std::uint64_t>(row) * bytes.stride[p] +
                F::plane_bytes(plane, {1, col}, params));
  };
  if (F::tile_start(shape, params, row, col, 0) != start(0)) return false;
  for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which) {
    const Piece here =
        F::param(shape, params, which, row, col / F::param_cols(which, params)).piece[0];
    const Piece there = F::param(one, params, which, 0, 0).piece[0];
    if (here.plane != there.plane || here.bit - there.bit != start(here.plane)) return false;
  }
  return true;
}

// Whether the format's rows can be runs of bytes at all.
template <CodedFormat F>
constexpr bool rows_may_be_bytes() {
  return F::kTile.rows == 1 && F::kTile.segments == 1 && index_plane<F>() < 0 && !SharesPlaces<F>;
}

// Where the window's bytes lie in each row, when rows are runs of bytes.
std::optional<RowBytes> row_bytes(const PackedWeight& weight, ColumnWindow window) {
  const Shape shape = weight.shape();
  const FormatParams& params = weight.params();
  return visit(weight.id(), [&]<class F>() -> std::optional<RowBytes> {
    RowBytes bytes;
    if (!rows_may_be_bytes<F>() || window.first % F::kTile.cols != 0 ||
        window.count % F::kTile.cols != 0 || F::legal({1, shape.cols}, params) != nullptr ||
        F::legal({1, window.first}, params) != nullptr ||
        F::legal({1, window.count}, params) != nullptr)
      return std::nullopt;
    for (int plane = 0; plane < weight.plane_count(); ++plane) {
      const auto p = static_cast<std::size_t>(plane);
      bytes.stride[p] = F::plane_bytes(plane, {1, shape.cols}, params);
      bytes.first[p] = F::plane_bytes(plane, {1, window.first}, params);
      bytes.count[p] = F::plane_bytes(plane, {1, window.count}, params);
      if (weight.plane(plane).size() != static_cast<std::uint64_t>(shape.rows) * bytes.stride[p])
        return std::nullopt;
    }
    if (shape.rows == 0 || shape.cols == 0) return bytes;
    for (const std::int64_t row :
         {std::int64_t{0}, std::int64_t{shape.rows > 1 ? 1 : 0}, shape.rows - 1})
      for (const std::int64_t col : {std::int64_t{0}, window.first})
        if (col < shape.cols && !starts_at<F>(shape, params, row, col, bytes)) return std::nullopt;
    return bytes;
  });
}

void copy_rows(const RowBytes& bytes, OwnedWeight& target,
               const std::function<RowPick(std::int64_t)>& pick) {
  for (std::int64_t row = 0; row < target.shape.rows; ++row) {
    const RowPick from = pick(row);
    if (from.source == nullptr) continue;
    for (std::size_t plane = 0; plane < target.planes.size(); ++plane) {
      if (bytes.count[plane] == 0) continue;
      std::memcpy(
          target.planes[plane].data() + static_cast<std::uint64_t>(row) * bytes.count[plane],
          from.source->plane(static_cast<int>(plane)).data() +
              static_cast<std::uint64_t>(from.row) * bytes.stride[plane] + bytes.first[plane],
          bytes.count[plane]);
    }
  }
}

// Codes and parameters of rows of one width.
struct RowScratch {
  std::vector<std::uint32_t> codes;
  std::vector<GroupValues> values;
  std::vector<RawParams> raw;
  RowScratch(std::int64_t cols, std::int64_t groups)
      : codes(static_cast<std::size_t>(cols)),
        values(static_cast<std::size_t>(groups)),
        raw(static_cast<std::size_t>(groups)) {}
  void read(const PackedWeight& weight, std::int64_t row) {
    unpack_row(weight, row, codes, values);
    raw_params_row(weight, row, raw);
  }
};

// The codes and stored parameters of one picked row, and those of the window.
class RepackedRow {
 public:
  RepackedRow(const PackedWeight& like, ColumnWindow window)
      : group_(group_cols(like.id(), like.params())),
        window_(window),
        source_(like.shape().cols, ceil_div(like.shape().cols, group_)),
        target_(window.count, ceil_div(window.count, group_)) {}

  void read(const RowPick& from) { source_.read(*from.source, from.row); }
  std::span<const std::uint32_t> codes() const {
    return std::span(source_.codes)
        .subspan(static_cast<std::size_t>(window_.first), static_cast<std::size_t>(window_.count));
  }
  std::span<const RawParams> raw() const {
    return std::span(source_.raw)
        .subspan(static_cast<std::size_t>(window_.first / group_), target_.raw.size());
  }
  // Whether the row of the new weight has what was read.
  bool is_in(const PackedWeight& weight, std::int64_t row) {
    target_.read(weight, row);
    return std::ranges::equal(target_.codes, codes()) &&
           std::ranges::equal(target_.raw, raw(), [](const RawParams& a, const RawParams& b) {
             return std::ranges::equal(a.pattern, b.pattern);
           });
  }

 private:
  std::int64_t group_;
  ColumnWindow window_;
  RowScratch source_, target_;
};

// The group numbers of the columns, of a format that stores them: as the sources have them.
ByteSpan group_numbers(const PackedWeight& weight) {
  return weight.plane(weight.format().index_plane);
}

// Writes the group numbers; false where picked rows have different ones.
bool copy_group_numbers(OwnedWeight& target, const PackedWeight& like,
                        const std::function<RowPick(std::int64_t)>& pick) {
  if (like.format().index_plane < 0) return true;
  const PackedWeight* source = target.shape.rows == 0 ? &like : pick(0).source;
  std::vector<std::byte>& numbers =
      target.planes[static_cast<std::size_t>(like.format().index_plane)];
  const ByteSpan from = group_numbers(*source).first(numbers.size());
  std::ranges::copy(from, numbers.begin());
  for (std::int64_t row = 1; row < target.shape.rows; ++row) {
    const PackedWeight* other = pick(row).source;
    if (other != source && !std::ranges::equal(group_numbers(*other).first(from.size()), from))
      return false;
    source = other;
  }
  return true;
}

// By codes and parameters, for layouts whose rows are not runs of bytes. What was written is read
// back: places that rows share, and group numbers of columns, must come out as they were.
Result<PackedWeight> repack_rows(OwnedWeight target, const PackedWeight& like,
                                 const std::function<RowPick(std::int64_t)>& pick,
                                 ColumnWindow window, std::string_view where) {
  const std::string_view name = like.format().name;
  if (!like.format().writable)
    return fail(ErrorCode::kUnsupported, where, name, "a layout that is only read",
                "a layout that can be written");
  if (like.params().act_order && window.count != like.shape().cols)
    return fail(ErrorCode::kNotRepresentable, where, name, "columns in activation order",
                "all columns", "their groups lie anywhere along k");
  if (window.first % group_cols(like.id(), like.params()) != 0)
    return fail(ErrorCode::kNotRepresentable, where, name,
                fmt::format("columns from {}", window.first), "whole groups");
  const Shape shape = target.shape;
  for (std::int64_t i = 0; i < shape.rows; ++i)
    if (pick(i).source == nullptr)
      return fail(ErrorCode::kUnsupported, where, name, "a row out of range", "positions in range",
                  "rows of this layout share words and parameters");
  if (!copy_group_numbers(target, like, pick))
    return fail(ErrorCode::kNotRepresentable, where, name, "rows of several activation orders",
                "rows of one");
  RepackedRow row(like, window);
  const auto planes = target.pointers();
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    row.read(pick(i));
    if (!pack_row(like.id(), shape, like.params(), planes.data(), i, row.codes(), row.raw()))
      return fail(ErrorCode::kNotRepresentable, where, name, fmt::format("row {}", i),
                  "codes that a block of the layout has");
  }
  PACKSTONE_TRY(PackedWeight made, std::move(target).release(name));
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    row.read(pick(i));
    if (!row.is_in(made, i))
      return fail(ErrorCode::kNotRepresentable, where, name, fmt::format("row {}", i),
                  "rows and columns that share no parameter or group with others",
                  "choose whole groups of rows and columns");
  }
  return made;
}

}  // namespace

bool rows_are_bytes(const PackedWeight& weight) {
  return row_bytes(weight, {0, weight.shape().cols}).has_value();
}

Result<PackedWeight> gather_rows(const PackedWeight& like, std::int64_t rows,
                                 const std::function<RowPick(std::int64_t)>& pick,
                                 ColumnWindow window, std::string_view where) {
  const Shape shape{rows, window.count};
  if (const char* rule = layout_rule(like.id(), shape, like.params()))
    return fail(ErrorCode::kInvalidInput, where, like.format().name,
                fmt::format("[{}, {}]", shape.rows, shape.cols), rule,
                "take or cut more rows or columns at a time");
  try {
    PACKSTONE_TRY(OwnedWeight target, OwnedWeight::allocate(like.id(), shape, like.params()));
    if (weight_bytes(like.id(), shape, like.params()) == 0)
      return std::move(target).release(like.format().name);
    if (const auto bytes = row_bytes(like, window)) {
      copy_rows(*bytes, target, pick);
      return std::move(target).release(like.format().name);
    }
    return repack_rows(std::move(target), like, pick, window, where);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, where, like.format().name, "too little memory",
                fmt::format("[{}, {}] in memory", shape.rows, shape.cols));
  }
}

}  // namespace packstone
