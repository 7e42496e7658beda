#include "packstone/transcode/fill.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <limits>

#include "packstone/format/registry.h"
#include "packstone/transcode/code_mover.h"
#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/plain_move.h"
#include "packstone/transcode/row_map.h"

namespace packstone {
namespace {

constexpr std::int64_t kNoRow = std::numeric_limits<std::int64_t>::max();

// Calls task(first row, end, worker) for units of target rows that share no byte.
template <class Task>
void for_units(std::int64_t rows, ThreadPool& pool, Task&& task) {
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t unit = begin; unit < end; ++unit)
      task(unit * kPackUnitRows, std::min((unit + 1) * kPackUnitRows, rows),
           static_cast<std::size_t>(worker));
  };
  pool.parallel(ceil_div(rows, kPackUnitRows), 1, work);
}

std::size_t groups_of(FormatId id, const FormatParams& params, Shape shape) {
  return static_cast<std::size_t>(ceil_div(shape.cols, group_cols(id, params)));
}

// The group numbers of columns are not carried by codes and parameters.
void copy_group_numbers(const PackedWeight& source, OwnedWeight& target) {
  const int from = source.format().index_plane, to = format_info(target.id).index_plane;
  if (from < 0 || to < 0 || !target.params.act_order) return;
  std::ranges::copy(source.plane(from), target.planes[static_cast<std::size_t>(to)].begin());
}

// Whether the target's row reads back as the parameters that were written to it.
class ReadBack {
 public:
  explicit ReadBack(OwnedWeight& target)
      : target_(target),
        planes_(target.pointers()),
        raw_(groups_of(target.id, target.params, target.shape)) {}

  bool same(std::int64_t row, std::span<const RawParams> written) {
    std::array<const unsigned char*, kPlanesMax> planes{};
    std::ranges::copy(planes_, planes.begin());
    format_ops(target_.id).read_params({planes.data(), target_.shape, target_.params}, row, raw_);
    const std::size_t count = format_info(target_.id).params.size();
    for (std::size_t i = 0; i < raw_.size(); ++i)
      if (!std::equal(raw_[i].pattern, raw_[i].pattern + count, written[i].pattern)) return false;
    return true;
  }

 private:
  OwnedWeight& target_;
  std::vector<unsigned char*> planes_;
  std::vector<RawParams> raw_;
};

// Rows of one unit that are made.
using UnitRows = std::bitset<static_cast<std::size_t>(kPackUnitRows)>;

// Makes the parameters of the rows of units that are plain (plain_move.h); none in any other way.
class PlainRows {
 public:
  PlainRows(const PackedWeight& source, OwnedWeight& target, MoveWay way, int workers) {
    for (int i = 0; way == MoveWay::kPlain && i < workers; ++i)
      moves_.emplace_back(source, target.id, std::span(&target.params, 1));
    if (!moves_.empty() && !moves_[0].possible()) moves_.clear();
    if (!moves_.empty()) write_group_numbers(target);
  }

  UnitRows make(OwnedWeight& target, std::span<const std::int64_t> rows, std::int64_t begin,
                std::size_t worker) {
    UnitRows made;
    if (moves_.empty()) return made;
    PlainMove& move = moves_[worker];
    const auto planes = target.pointers();
    for (std::size_t at = 0; at < rows.size(); at += PlainMove::kRowsMax) {
      const auto chunk =
          rows.subspan(at, std::min<std::size_t>(PlainMove::kRowsMax, rows.size() - at));
      move.load(chunk);
      move.fit(0);
      move.store({planes.data(), target.shape, target.params},
                 begin + static_cast<std::int64_t>(at));
      for (std::size_t r = 0; r < chunk.size(); ++r) made[at + r] = move.plain(r);
    }
    return made;
  }

 private:
  // What write_params does with the first row.
  static void write_group_numbers(OwnedWeight& target) {
    const int plane = format_info(target.id).index_plane;
    if (plane < 0 || target.params.act_order) return;
    auto* bytes = target.pointers()[static_cast<std::size_t>(plane)];
    const std::int64_t width = group_cols(target.id, target.params);
    for (std::int64_t col = 0; col < target.shape.cols; ++col)
      write_bits(bytes, 32 * static_cast<std::uint64_t>(col), 32,
                 static_cast<std::uint32_t>(col / width));
  }

  std::vector<PlainMove> moves_;
};

// Runs make(row, source row, worker, raw, true) for all rows that are not plain, finish(first row,
// end, worker) after each unit of rows, and then, where rows share parameters, make once more to
// compare what the target has with what each row needs.
template <class Make, class Finish>
std::int64_t make_rows(OwnedWeight& target, std::span<const std::int32_t> order, PlainRows& plain,
                       ThreadPool& pool, Make&& make, Finish&& finish) {
  const auto workers = static_cast<std::size_t>(pool.size());
  const std::size_t groups = groups_of(target.id, target.params, target.shape);
  std::vector<std::vector<RawParams>> raw(workers, std::vector<RawParams>(groups));
  std::vector<std::int64_t> failed(workers, kNoRow);
  const auto source_row = [&](std::int64_t row) {
    return order.empty() ? row : order[static_cast<std::size_t>(row)];
  };
  auto first_failed = [&] {
    const std::int64_t row = std::ranges::min(failed);
    return row == kNoRow ? -1 : row;
  };
  for_units(target.shape.rows, pool, [&](std::int64_t begin, std::int64_t end, std::size_t w) {
    std::array<std::int64_t, kPackUnitRows> rows;
    for (std::int64_t row = begin; row < end; ++row)
      rows[static_cast<std::size_t>(row - begin)] = source_row(row);
    const auto unit = std::span(rows).first(static_cast<std::size_t>(end - begin));
    const UnitRows made = plain.make(target, unit, begin, w);
    for (std::int64_t row = begin; row < end; ++row)
      if (!made[static_cast<std::size_t>(row - begin)] &&
          !make(row, source_row(row), w, raw[w], true))
        failed[w] = std::min(failed[w], source_row(row));
    if (failed[w] == kNoRow) finish(begin, end, w);
  });
  if (first_failed() >= 0 || !format_info(target.id).shares_rows) return first_failed();
  std::vector<ReadBack> read_back(workers, ReadBack(target));
  for_units(target.shape.rows, pool, [&](std::int64_t begin, std::int64_t end, std::size_t w) {
    for (std::int64_t row = begin; row < end; ++row)
      if (!make(row, source_row(row), w, raw[w], false) || !read_back[w].same(row, raw[w]))
        failed[w] = std::min(failed[w], source_row(row));
  });
  return first_failed();
}

// Codes that move as blocks of bytes: one mover a worker; none where the formats do not allow it.
std::vector<CodeMover> make_movers(const PackedWeight& source, OwnedWeight& target, int workers,
                                   std::span<const std::uint8_t> table, std::int64_t width) {
  std::vector<CodeMover> movers;
  if (!block_movable(source.id(), target.id)) return movers;
  for (int i = 0; i < workers; ++i) movers.emplace_back(source, target, table, width);
  return movers;
}

std::int64_t fill_moved(const PackedWeight& source, std::span<const std::int32_t> order,
                        MoveWay way, OwnedWeight& target, ThreadPool& pool) {
  std::vector<RowMap> maps;
  for (int i = 0; i < pool.size(); ++i) maps.emplace_back(source, target.id, target.params);
  std::vector<CodeMover> movers = make_movers(source, target, pool.size(), maps[0].code_table(),
                                              maps[0].target_side().group_cols);
  const auto planes = target.pointers();
  const MutablePlanes bytes{planes.data(), target.shape, target.params};
  const FormatOps& ops = format_ops(target.id);
  copy_group_numbers(source, target);
  PlainRows plain(source, target, way, pool.size());
  auto make = [&](std::int64_t row, std::int64_t from, std::size_t w, std::vector<RawParams>& raw,
                  bool write) {
    RowMap& map = maps[w];
    if (map.map(from, RowMap::Purpose::kFill).fault != GroupFault::kNone ||
        ops.encode(target.params, map.values(), raw) >= 0)
      return false;
    if (!write) return true;
    ops.write_params(bytes, row, raw);
    if (movers.empty()) return ops.write_codes(bytes, row, map.target_codes(from).data());
    if (map.any_shift()) movers[w].set_shifts(row % kPackUnitRows, map.shifts());
    return true;
  };
  return make_rows(target, order, plain, pool, make,
                   [&](std::int64_t begin, std::int64_t end, std::size_t w) {
                     if (!movers.empty()) movers[w].move(begin, end, order);
                   });
}

std::int64_t fill_decoded(const PackedWeight& source, std::span<const std::int32_t> order,
                          OwnedWeight& target, ThreadPool& pool) {
  const FloatType type = float_type(target.id);
  const auto cols = static_cast<std::size_t>(source.shape().cols);
  const auto workers = static_cast<std::size_t>(pool.size());
  std::vector<std::vector<float>> values(workers, std::vector<float>(cols));
  std::vector<std::vector<std::uint32_t>> codes(workers, std::vector<std::uint32_t>(cols));
  const auto planes = target.pointers();
  auto make = [&](std::int64_t row, std::int64_t from, std::size_t w, std::vector<RawParams>& raw,
                  bool) {
    bool good = true;
    decode_row(source, from, values[w]);
    for (std::size_t i = 0; i < cols; ++i)
      good = encode_float_exact(type, values[w][i], codes[w][i]) && good;
    return pack_row(target.id, target.shape, target.params, planes.data(), row, codes[w], raw) &&
           good;
  };
  PlainRows plain(source, target, MoveWay::kByGroup, pool.size());
  return make_rows(target, order, plain, pool, make,
                   [](std::int64_t, std::int64_t, std::size_t) {});
}

}  // namespace

std::int64_t fill(const PackedWeight& source, SchemeMap map,
                  std::span<const std::int32_t> row_order, MoveWay way, OwnedWeight& target,
                  ThreadPool& pool) {
  return map == SchemeMap::kDecode ? fill_decoded(source, row_order, target, pool)
                                   : fill_moved(source, row_order, way, target, pool);
}

std::int64_t copy_rows(const PackedWeight& source, std::span<const std::int32_t> row_order,
                       MoveWay way, OwnedWeight& target, ThreadPool& pool) {
  std::vector<CodeMover> movers = make_movers(source, target, pool.size(), {}, source.shape().cols);
  std::vector<std::vector<std::uint32_t>> codes(
      static_cast<std::size_t>(pool.size()),
      std::vector<std::uint32_t>(movers.empty() ? static_cast<std::size_t>(source.shape().cols)
                                                : std::size_t{0}));
  const auto planes = target.pointers();
  const auto source_planes = source.plane_pointers();
  const MutablePlanes bytes{planes.data(), target.shape, target.params};
  const ConstPlanes source_bytes{source_planes.data(), source.shape(), source.params()};
  const FormatOps& ops = format_ops(source.id());
  copy_group_numbers(source, target);
  PlainRows plain(source, target, way, pool.size());
  auto make = [&](std::int64_t row, std::int64_t from, std::size_t w, std::vector<RawParams>& raw,
                  bool write) {
    ops.read_params(source_bytes, from, raw);
    if (!write) return true;
    ops.write_params(bytes, row, raw);
    if (!movers.empty()) return true;
    ops.read_codes(source_bytes, from, codes[w].data());
    return ops.write_codes(bytes, row, codes[w].data());
  };
  return make_rows(target, row_order, plain, pool, make,
                   [&](std::int64_t begin, std::int64_t end, std::size_t w) {
                     if (!movers.empty()) movers[w].move(begin, end, row_order);
                   });
}

}  // namespace packstone
