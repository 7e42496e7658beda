#include <new>

#include "packstone/transcode/unpack.h"
#include "packstone/weight/placed.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

constexpr std::int64_t kRowsAtATime = 16;

// Decodes all rows of a slab into `result`, row by row.
void decode_slab(const Slab& slab, Array& result, ThreadPool& pool) {
  const std::size_t row_bytes = static_cast<std::size_t>(slab.used) * value_bytes(result.type);
  if (result.bytes.empty()) return;
  std::vector<std::vector<float>> scratch(static_cast<std::size_t>(pool.size()));
  for (auto& row : scratch) row.resize(static_cast<std::size_t>(slab.cols));
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::span<float> row = scratch[static_cast<std::size_t>(worker)];
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t matrix = i / slab.rows;
      decode_row(slab.weight_of(matrix), slab.first_row(matrix) + i % slab.rows, row);
      store_values(
          row.subspan(static_cast<std::size_t>(slab.skip), static_cast<std::size_t>(slab.used)),
          result.type, result.bytes.data() + static_cast<std::size_t>(i) * row_bytes);
    }
  };
  pool.parallel(slab.count * slab.rows, kRowsAtATime, work);
}

}  // namespace

Result<PlacedArray> dequant_placed(const Weight& w, ValueType type, ThreadPool& pool) {
  const WeightState& state = w.state();
  try {
    PlacedArray result{type, state.dims, state.placement, state.ends, false, {}};
    for (std::size_t d = 0; d < state.slabs.size(); ++d) {
      Array& shard = result.shards.emplace_back(zeros(type, state.local_dims(static_cast<int>(d))));
      decode_slab(state.slabs[d], shard, pool);
    }
    return result;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "weight.dequant", w.case_name(), "too little memory",
                fmt::format("{} of {} in memory", dims_text(state.dims), value_type_name(type)));
  }
}

Result<Array> dequant(const Weight& w, ValueType type, ThreadPool& pool) {
  PACKSTONE_TRY(PlacedArray placed, dequant_placed(w, type, pool));
  if (!w.state().is_cut()) return std::move(placed.shards[0]);
  return placed.whole();
}

}  // namespace packstone
