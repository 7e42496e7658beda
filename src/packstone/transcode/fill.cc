#include "packstone/transcode/fill.h"

#include <algorithm>
#include <limits>

#include "packstone/format/registry.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

constexpr std::int64_t kNoRow = std::numeric_limits<std::int64_t>::max();

// Calls task(row, source row, worker) for every target row, in units that share no byte.
template <class Task>
void for_rows(std::int64_t rows, std::span<const std::int32_t> order, ThreadPool& pool,
              Task&& task) {
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::int64_t last = std::min(end * kPackUnitRows, rows);
    for (std::int64_t row = begin * kPackUnitRows; row < last; ++row)
      task(row, order.empty() ? row : order[static_cast<std::size_t>(row)],
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

// Runs make(row, source row, worker, raw) for all rows and then, where rows share parameters,
// once more to compare what the target has with what each row needs.
template <class Make>
std::int64_t make_rows(OwnedWeight& target, std::span<const std::int32_t> order, ThreadPool& pool,
                       Make&& make) {
  const auto workers = static_cast<std::size_t>(pool.size());
  const std::size_t groups = groups_of(target.id, target.params, target.shape);
  std::vector<std::vector<RawParams>> raw(workers, std::vector<RawParams>(groups));
  std::vector<std::int64_t> failed(workers, kNoRow);
  auto first_failed = [&] {
    const std::int64_t row = std::ranges::min(failed);
    return row == kNoRow ? -1 : row;
  };
  for_rows(target.shape.rows, order, pool, [&](std::int64_t row, std::int64_t from, std::size_t w) {
    if (!make(row, from, w, raw[w], true)) failed[w] = std::min(failed[w], from);
  });
  if (first_failed() >= 0 || !format_info(target.id).shares_rows) return first_failed();
  std::vector<ReadBack> read_back(workers, ReadBack(target));
  for_rows(target.shape.rows, order, pool, [&](std::int64_t row, std::int64_t from, std::size_t w) {
    if (!make(row, from, w, raw[w], false) || !read_back[w].same(row, raw[w]))
      failed[w] = std::min(failed[w], from);
  });
  return first_failed();
}

std::int64_t fill_moved(const PackedWeight& source, std::span<const std::int32_t> order,
                        OwnedWeight& target, ThreadPool& pool) {
  std::vector<RowMap> maps;
  for (int i = 0; i < pool.size(); ++i) maps.emplace_back(source, target.id, target.params);
  const auto planes = target.pointers();
  copy_group_numbers(source, target);
  auto make = [&](std::int64_t row, std::int64_t from, std::size_t w, std::vector<RawParams>& raw,
                  bool write) {
    RowMap& map = maps[w];
    if (map.map(from).fault != GroupFault::kNone ||
        encode_params(target.id, target.params, map.values(), raw) >= 0)
      return false;
    return !write || pack_row(target.id, target.shape, target.params, planes.data(), row,
                              map.target_codes(from), raw);
  };
  return make_rows(target, order, pool, make);
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
  return make_rows(target, order, pool, make);
}

}  // namespace

std::int64_t fill(const PackedWeight& source, SchemeMap map,
                  std::span<const std::int32_t> row_order, OwnedWeight& target, ThreadPool& pool) {
  return map == SchemeMap::kDecode ? fill_decoded(source, row_order, target, pool)
                                   : fill_moved(source, row_order, target, pool);
}

std::int64_t copy_rows(const PackedWeight& source, std::span<const std::int32_t> row_order,
                       OwnedWeight& target, ThreadPool& pool) {
  const auto workers = static_cast<std::size_t>(pool.size());
  const auto planes = target.pointers();
  std::vector<std::vector<std::uint32_t>> codes(
      workers, std::vector<std::uint32_t>(static_cast<std::size_t>(source.shape().cols)));
  std::vector<std::vector<GroupValues>> values(
      workers, std::vector<GroupValues>(groups_of(source.id(), source.params(), source.shape())));
  copy_group_numbers(source, target);
  auto make = [&](std::int64_t row, std::int64_t from, std::size_t w, std::vector<RawParams>& raw,
                  bool write) {
    raw_params_row(source, from, raw);
    if (!write) return true;
    unpack_row(source, from, codes[w], values[w]);
    return pack_row(target.id, target.shape, target.params, planes.data(), row, codes[w], raw);
  };
  return make_rows(target, row_order, pool, make);
}

}  // namespace packstone
