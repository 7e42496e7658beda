#include "packstone/weight/product.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "packstone/kernel/matmul/linear.h"
#include "packstone/weight/dot_f64.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

constexpr std::string_view kApply = "weight.apply";
constexpr std::string_view kExperts = "weight.apply_experts";
constexpr std::int64_t kExpertRowsMax = 256;  // rows of x gathered for one expert at a time

ValueType sum_type(ValueType x) {
  return x == ValueType::kF64 ? ValueType::kF64 : ValueType::kF32;
}

// Products with the matrices of one slab, summed as T.
template <class T>
class Engine {
 public:
  Engine(const Slab& slab, ThreadPool& pool)
      : slab_(slab), pool_(pool), workspace_(workspace(slab, pool)) {}

  // y[i, r] = dot(x row i, row r of the matrix); x has the slab's used columns.
  Status run(std::int64_t matrix, const T* x, std::int64_t m, std::int64_t x_stride, T* y,
             std::int64_t y_stride) {
    if (m == 0 || slab_.rows == 0) return {};
    if (slab_.cols == 0) {
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(y + i * y_stride, slab_.rows, T{0});
      return {};
    }
    if (slab_.used != slab_.cols) {
      padded_.assign(static_cast<std::size_t>(m * slab_.cols), T{0});
      for (std::int64_t i = 0; i < m; ++i)
        std::copy_n(x + i * x_stride, slab_.used, padded_.data() + i * slab_.cols + slab_.skip);
      x = padded_.data();
      x_stride = slab_.cols;
    }
    return multiply(matrix, x, m, x_stride, y, y_stride);
  }

 private:
  static MatmulWorkspace workspace(const Slab& slab, const ThreadPool& pool) {
    return sizeof(T) == sizeof(float) ? MatmulWorkspace(pool.size(), slab.cols)
                                      : MatmulWorkspace(1, 1);
  }

  Status multiply(std::int64_t matrix, const T* x, std::int64_t m, std::int64_t x_stride, T* y,
                  std::int64_t y_stride) {
    const PackedWeight& packed = slab_.weight_of(matrix);
    const std::int64_t first = slab_.first_row(matrix);
    if constexpr (sizeof(T) == sizeof(double)) {
      multiply_f64(packed, first, slab_.rows, x, m, x_stride, y, y_stride, pool_);
    } else {
      if (&packed != prepared_) {
        PACKSTONE_TRY(Linear linear, Linear::prepare(packed));
        linear_.emplace(std::move(linear));
        prepared_ = &packed;
      }
      linear_->run_range(first, slab_.rows, x, m, x_stride, y, y_stride, pool_, workspace_);
    }
    return {};
  }

  const Slab& slab_;
  ThreadPool& pool_;
  MatmulWorkspace workspace_;
  std::vector<T> padded_;
  std::optional<Linear> linear_;
  const PackedWeight* prepared_ = nullptr;
};

// x at the type of the sum; the caller's own memory where it has that type and is aligned.
template <class T>
class Input {
 public:
  explicit Input(const ArrayView& x) {
    const bool same = x.type == (sizeof(T) == 8 ? ValueType::kF64 : ValueType::kF32);
    if (same && reinterpret_cast<std::uintptr_t>(x.bytes.data()) % alignof(T) == 0) {
      data_ = reinterpret_cast<const T*>(x.bytes.data());
      return;
    }
    copy_.resize(x.bytes.size() / value_bytes(x.type));
    if constexpr (sizeof(T) == 8)
      load_f64(x.bytes.data(), x.type, copy_);
    else
      load_f32(x.bytes.data(), x.type, copy_);
    data_ = copy_.data();
  }
  const T* data() const { return data_; }

 private:
  std::vector<T> copy_;
  const T* data_ = nullptr;
};

// The leading axes of a product, aligned at the right: how far a step along each moves w and x.
struct Broadcast {
  Dims dims;
  Dims w_stride, x_stride;
  std::int64_t count = 1;

  void locate(std::int64_t index, std::int64_t& w, std::int64_t& x) const {
    w = x = 0;
    for (std::size_t i = dims.size(); i-- > 0; index /= dims[i]) {
      w += index % dims[i] * w_stride[i];
      x += index % dims[i] * x_stride[i];
    }
  }
};

Dims strides(std::span<const std::int64_t> axes, std::size_t rank) {
  Dims result(rank, 0);
  std::int64_t step = 1;
  for (std::size_t i = axes.size(); i-- > 0; step *= axes[i])
    result[rank - axes.size() + i] = axes[i] == 1 ? 0 : step;
  return result;
}

// Nothing where the axes do not broadcast.
std::optional<Broadcast> broadcast(std::span<const std::int64_t> w,
                                   std::span<const std::int64_t> x) {
  Broadcast result;
  const std::size_t rank = std::max(w.size(), x.size());
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t a = i + w.size() < rank ? 1 : w[i + w.size() - rank];
    const std::int64_t b = i + x.size() < rank ? 1 : x[i + x.size() - rank];
    if (a != b && a != 1 && b != 1) return std::nullopt;
    result.dims.push_back(a == 1 ? b : a);
  }
  const auto count = element_count(result.dims);
  if (!count) return std::nullopt;
  result.count = *count;
  result.w_stride = strides(w, rank);
  result.x_stride = strides(x, rank);
  return result;
}

// One product of apply on one device.
template <class T>
struct DeviceProduct {
  const Slab& slab;
  const Broadcast& batches;
  std::int64_t x_batch;  // batch of x that the device starts at
  const T* x;            // at the device's first column
  std::int64_t m, x_stride, n;

  // y [batches, m, n]. Neighbouring batches of one matrix are one product.
  Status run(T* y, ThreadPool& pool) const {
    if (m == 0 || n == 0) return {};
    Engine<T> engine(slab, pool);
    for (std::int64_t b = 0; b < batches.count;) {
      std::int64_t matrix = 0, first = 0, run = 1;
      batches.locate(b, matrix, first);
      for (; b + run < batches.count; ++run) {
        std::int64_t next_matrix = 0, next = 0;
        batches.locate(b + run, next_matrix, next);
        if (next_matrix != matrix || next != first + run) break;
      }
      PACKSTONE_CHECK_OK(engine.run(matrix, x + (x_batch + first) * m * x_stride, run * m, x_stride,
                                    y + b * m * n, n));
      b += run;
    }
    return {};
  }
};

// Rounds sums of type T to the result's type.
Array finish(Array sums, ValueType type) {
  if (sums.type == type) return sums;
  Array result = zeros(type, sums.dims);
  store_values(sums.as<float>(), type, result.bytes.data());
  return result;
}

struct ApplyShape {
  Dims x_leading;
  std::int64_t m = 1;
  bool vector = false;
  Broadcast batches;  // of the whole weight
};

Result<ApplyShape> apply_shape(const Weight& w, const ArrayView& x) {
  PACKSTONE_CHECK_OK(check_view(x, kApply, "x"));
  if (x.dims.empty() || x.dims.back() != w.k())
    return fail(ErrorCode::kInvalidInput, kApply, "x", "shape " + dims_text(x.dims),
                fmt::format("[..., m, {0}] or [{0}]", w.k()));
  ApplyShape shape;
  shape.vector = x.dims.size() == 1;
  if (!shape.vector) {
    shape.m = x.dims[x.dims.size() - 2];
    shape.x_leading.assign(x.dims.begin(), x.dims.end() - 2);
  }
  const auto batches = broadcast(std::span(w.shape()).first(w.shape().size() - 2), shape.x_leading);
  Dims result = batches ? batches->dims : Dims{};
  result.push_back(shape.m);
  result.push_back(w.n());
  if (!batches || !element_count(result))
    return fail(ErrorCode::kInvalidInput, kApply, "x", "shape " + dims_text(x.dims),
                "leading axes that broadcast with those of " + dims_text(w.shape()));
  shape.batches = *batches;
  return shape;
}

Dims product_dims(const Dims& leading, const ApplyShape& shape, std::int64_t n) {
  Dims dims = leading;
  if (!shape.vector) dims.push_back(shape.m);
  dims.push_back(n);
  return dims;
}

// Where the result of apply lies: terms along k, else cut as w is.
struct ResultCut {
  bool terms = false;
  int axis = Placement::kWhole;
  std::vector<std::int64_t> ends;
};

ResultCut result_cut(const WeightState& state, const ApplyShape& shape) {
  ResultCut cut;
  if (!state.is_cut()) return cut;
  const int rank = static_cast<int>(state.dims.size()), axis = state.placement.axis;
  const int leading = static_cast<int>(shape.batches.dims.size());
  cut.ends = state.ends;
  if (axis == rank - 1) {
    cut.terms = true;
    cut.ends.clear();
  } else if (axis == rank - 2) {
    cut.axis = leading + (shape.vector ? 0 : 1);
  } else {
    cut.axis = leading - (rank - 2) + axis;
    // One matrix for all: the device that has it makes every batch.
    if (state.dims[static_cast<std::size_t>(axis)] == 1)
      for (std::int64_t& end : cut.ends)
        end *= shape.batches.dims[static_cast<std::size_t>(cut.axis)];
  }
  return cut;
}

// What device d multiplies: its matrices with its batches and columns of x.
template <class T>
Result<Array> device_apply(const WeightState& state, const ApplyShape& shape, const ResultCut& cut,
                           int d, const T* x, ThreadPool& pool) {
  const Slab& slab = state.slab(d);
  const Dims local = state.local_dims(d);
  const auto w_leading = std::span(local).first(local.size() - 2);
  Dims x_leading = shape.x_leading;
  std::int64_t x_batch = 0;
  const int rank = static_cast<int>(state.dims.size());
  if (state.is_cut() && state.placement.axis < rank - 2) {
    const auto from_right =
        static_cast<std::size_t>(rank - 2 - state.placement.axis);  // of the cut axis
    if (from_right <= x_leading.size()) {
      const std::size_t at = x_leading.size() - from_right;
      if (x_leading[at] != 1 && state.dims[static_cast<std::size_t>(state.placement.axis)] != 1) {
        x_batch = state.ends[static_cast<std::size_t>(d)];
        for (std::size_t i = at + 1; i < x_leading.size(); ++i) x_batch *= x_leading[i];
        // Strides stay those of all of x; only the extent shrinks.
      }
    }
  }
  Broadcast batches = shape.batches;
  batches.w_stride = strides(w_leading, batches.dims.size());
  if (cut.axis >= 0 && cut.axis < static_cast<int>(batches.dims.size())) {
    const auto at = static_cast<std::size_t>(cut.axis), e = static_cast<std::size_t>(d);
    batches.dims[at] = cut.ends[e + 1] - cut.ends[e];
    batches.count = 1;
    for (const std::int64_t axis : batches.dims) batches.count *= axis;
  }
  const bool columns = cut.terms;
  const T* start = columns ? x + state.ends[static_cast<std::size_t>(d)] : x;
  Array y = zeros(sizeof(T) == 8 ? ValueType::kF64 : ValueType::kF32,
                  product_dims(batches.dims, shape, slab.rows));
  const DeviceProduct<T> product{slab,    batches,           x_batch,  start,
                                 shape.m, state.dims.back(), slab.rows};
  PACKSTONE_CHECK_OK(product.run(y.as<T>().data(), pool));
  return y;
}

template <class T>
Result<PlacedArray> apply_as(const Weight& w, const ArrayView& x, const ApplyShape& shape,
                             ThreadPool& pool) {
  const WeightState& state = w.state();
  const ResultCut cut = result_cut(state, shape);
  const Input<T> input(x);
  PlacedArray result{x.type,
                     product_dims(shape.batches.dims, shape, w.n()),
                     {w.placement().devices, cut.axis},
                     cut.ends,
                     cut.terms,
                     {}};
  for (int d = 0; d < static_cast<int>(state.slabs.size()); ++d) {
    PACKSTONE_TRY(Array y, device_apply<T>(state, shape, cut, d, input.data(), pool));
    result.shards.push_back(cut.terms ? std::move(y) : finish(std::move(y), x.type));
  }
  return result;
}

// Closes the sum of terms unless the caller keeps it.
Result<PlacedArray> close(PlacedArray result, ProductOptions options) {
  if (!result.terms || options.sum) return result;
  PACKSTONE_TRY(Array whole, result.whole());
  result.terms = false;
  result.shards.clear();
  result.shards.push_back(std::move(whole));
  return result;
}

}  // namespace

Result<PlacedArray> apply_placed(const Weight& w, const ArrayView& x, ThreadPool& pool,
                                 ProductOptions options) {
  PACKSTONE_TRY(const ApplyShape shape, apply_shape(w, x));
  try {
    PACKSTONE_TRY(PlacedArray result, sum_type(x.type) == ValueType::kF64
                                          ? apply_as<double>(w, x, shape, pool)
                                          : apply_as<float>(w, x, shape, pool));
    return close(std::move(result), options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kApply, "result", "too little memory",
                "the result and one panel per thread");
  }
}

Result<Array> apply(const Weight& w, const ArrayView& x, ThreadPool& pool) {
  PACKSTONE_TRY(PlacedArray result, apply_placed(w, x, pool));
  if (result.placement.axis == Placement::kWhole) return std::move(result.shards[0]);
  return result.whole();
}

namespace {

// The positions of apply_experts and the rows of x that they read.
struct ExpertsShape {
  Dims ids;
  Dims x_stride;
  std::int64_t positions = 0;
};

Result<ExpertsShape> experts_shape(const Weight& w, std::span<const std::int64_t> ids,
                                   std::span<const std::int64_t> x) {
  if (w.shape().size() != 3)
    return fail(ErrorCode::kInvalidInput, kExperts, w.case_name(), "shape " + dims_text(w.shape()),
                "[e, n, k]");
  if (x.size() != ids.size() + 1 || x.back() != w.k())
    return fail(ErrorCode::kInvalidInput, kExperts, "x", "shape " + dims_text(x),
                fmt::format("[..., {}] with one axis more than ids {}", w.k(), dims_text(ids)));
  ExpertsShape shape{{ids.begin(), ids.end()}, {}, 1};
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (x[i] != ids[i] && x[i] != 1)
      return fail(ErrorCode::kInvalidInput, kExperts, "x", "shape " + dims_text(x),
                  "leading axes that broadcast to ids " + dims_text(ids));
  shape.x_stride = strides(x.first(ids.size()), ids.size());
  Dims result = shape.ids;
  result.push_back(w.n());
  const auto count = element_count(shape.ids);
  if (!count || !element_count(result))
    return fail(ErrorCode::kInvalidInput, kExperts, "ids", "shape " + dims_text(ids),
                "at most 8 axes and a result of at most 2^48 elements");
  shape.positions = *count;
  return shape;
}

std::int64_t row_of(const ExpertsShape& shape, std::int64_t position) {
  std::int64_t row = 0;
  for (std::size_t i = shape.ids.size(); i-- > 0; position /= shape.ids[i])
    row += position % shape.ids[i] * shape.x_stride[i];
  return row;
}

// The rows of one device's experts [first, first + count), at y [positions, n]; rows of other
// experts are left as they are.
template <class T>
Status run_experts(const Slab& slab, std::int64_t first, const ExpertsShape& shape,
                   std::span<const std::int64_t> ids, const T* x, std::int64_t x_stride, T* y,
                   ThreadPool& pool) {
  std::vector<std::int64_t> order;
  for (std::int64_t p = 0; p < shape.positions; ++p) {
    const std::int64_t id = ids[static_cast<std::size_t>(p)];
    if (id >= first && id - first < slab.count) order.push_back(p);
  }
  const auto id_of = [&](std::int64_t p) { return ids[static_cast<std::size_t>(p)]; };
  std::ranges::stable_sort(order, {}, id_of);
  Engine<T> engine(slab, pool);
  std::vector<T> rows, sums;
  for (std::size_t at = 0; at < order.size();) {
    std::size_t end = at + 1;
    while (end < order.size() && id_of(order[end]) == id_of(order[at]) &&
           end - at < static_cast<std::size_t>(kExpertRowsMax))
      ++end;
    const auto m = static_cast<std::int64_t>(end - at);
    rows.resize(static_cast<std::size_t>(m * slab.used));
    sums.resize(static_cast<std::size_t>(m * slab.rows));
    for (std::int64_t i = 0; i < m; ++i)
      std::copy_n(x + row_of(shape, order[at + static_cast<std::size_t>(i)]) * x_stride, slab.used,
                  rows.data() + i * slab.used);
    PACKSTONE_CHECK_OK(
        engine.run(id_of(order[at]) - first, rows.data(), m, slab.used, sums.data(), slab.rows));
    for (std::int64_t i = 0; i < m; ++i)
      std::copy_n(sums.data() + i * slab.rows, slab.rows,
                  y + order[at + static_cast<std::size_t>(i)] * slab.rows);
    at = end;
  }
  return {};
}

// What every device adds: its window of n or k of every position, or the positions of its experts.
template <class T>
Result<PlacedArray> experts_as(const Weight& w, const ExpertsShape& shape,
                               std::span<const std::int64_t> ids, const ArrayView& x,
                               ThreadPool& pool) {
  const WeightState& state = w.state();
  const Input<T> input(x);
  Dims dims = shape.ids;
  dims.push_back(w.n());
  PlacedArray result{x.type, dims, {w.placement().devices, Placement::kWhole}, {}, false, {}};
  const int axis = state.placement.axis;
  result.terms = axis == 0 || axis == 2;
  if (axis == 1) {
    result.placement.axis = static_cast<int>(shape.ids.size());
    result.ends = state.ends;
  }
  for (std::size_t d = 0; d < state.slabs.size(); ++d) {
    const Slab& slab = state.slabs[d];
    dims.back() = slab.rows;
    Array y = zeros(sizeof(T) == 8 ? ValueType::kF64 : ValueType::kF32, dims);
    const std::span<T> values = y.as<T>();
    // -0.0 changes no sum; the first device gives the zeros of positions out of range.
    if (axis == 0) {
      for (std::int64_t p = 0; p < shape.positions; ++p) {
        const std::int64_t id = ids[static_cast<std::size_t>(p)];
        if (d != 0 || (id >= 0 && id < state.dims[0]))
          std::fill_n(values.data() + p * slab.rows, slab.rows, T{-0.0});
      }
    }
    PACKSTONE_CHECK_OK(run_experts<T>(slab, axis == 0 ? state.ends[d] : 0, shape, ids,
                                      input.data() + (axis == 2 ? state.ends[d] : 0), w.k(),
                                      values.data(), pool));
    result.shards.push_back(result.terms ? std::move(y) : finish(std::move(y), x.type));
  }
  return result;
}

Result<PlacedArray> experts_whole(const Weight& w, std::span<const std::int64_t> ids_dims,
                                  std::span<const std::int64_t> ids, const ArrayView& x,
                                  ThreadPool& pool) {
  PACKSTONE_TRY(const ExpertsShape shape, experts_shape(w, ids_dims, x.dims));
  return sum_type(x.type) == ValueType::kF64 ? experts_as<double>(w, shape, ids, x, pool)
                                             : experts_as<float>(w, shape, ids, x, pool);
}

Status check_ids(const IdsView& ids) {
  const auto count = element_count(ids.dims);
  if (count && static_cast<std::size_t>(*count) == ids.values.size()) return {};
  return fail(ErrorCode::kInvalidInput, kExperts, "ids",
              fmt::format("{} values", ids.values.size()), "as many as " + dims_text(ids.dims));
}

// Whether both are cut along the first axis into the same equal windows, beside a whole weight.
bool own_positions(const Weight& w, const PlacedIds& ids, const PlacedArray& x) {
  if (w.state().is_cut() || ids.placement != x.placement || ids.placement.axis != 0 ||
      ids.ends != x.ends || w.shape().size() != 3)
    return false;
  for (std::size_t d = 2; d < ids.ends.size(); ++d)
    if (ids.ends[d] - ids.ends[d - 1] != ids.ends[1]) return false;
  return true;
}

std::vector<std::int64_t> whole_ids(const PlacedIds& ids) {
  if (ids.placement.axis == Placement::kWhole) return ids.shards[0];
  std::vector<std::int64_t> all(static_cast<std::size_t>(*element_count(ids.dims)));
  std::int64_t outer = 1, inner = 1;
  const auto axis = static_cast<std::size_t>(ids.placement.axis);
  for (std::size_t i = 0; i < axis; ++i) outer *= ids.dims[i];
  for (std::size_t i = axis + 1; i < ids.dims.size(); ++i) inner *= ids.dims[i];
  for (std::size_t d = 0; d < ids.shards.size(); ++d) {
    const std::int64_t run = (ids.ends[d + 1] - ids.ends[d]) * inner;
    for (std::int64_t i = 0; i < outer; ++i)
      std::copy_n(ids.shards[d].begin() + i * run, run,
                  all.begin() + (i * ids.dims[axis] + ids.ends[d]) * inner);
  }
  return all;
}

}  // namespace

Result<PlacedArray> apply_experts_placed(const Weight& w, const PlacedIds& ids,
                                         const PlacedArray& x, ThreadPool& pool,
                                         ProductOptions options) {
  try {
    PACKSTONE_TRY(const ExpertsShape shape, experts_shape(w, ids.dims, x.dims));
    if (own_positions(w, ids, x)) {
      Dims dims = shape.ids;
      dims.push_back(w.n());
      PlacedArray result{x.type, dims, ids.placement, ids.ends, false, {}};
      for (std::size_t d = 0; d < ids.shards.size(); ++d) {
        Dims local = ids.dims;
        local[0] = ids.ends[d + 1] - ids.ends[d];
        PACKSTONE_TRY(PlacedArray part,
                      experts_whole(w, local, ids.shards[d], x.shards[d].view(), pool));
        result.shards.push_back(std::move(part.shards[0]));
      }
      return result;
    }
    const std::vector<std::int64_t> all = whole_ids(ids);
    PACKSTONE_TRY(const Array rows, x.whole());
    PACKSTONE_TRY(PlacedArray result, experts_whole(w, ids.dims, all, rows.view(), pool));
    return close(std::move(result), options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kExperts, "result", "too little memory",
                "the result, the rows of x and one panel per thread");
  }
}

Result<Array> apply_experts(const Weight& w, const IdsView& ids, const ArrayView& x,
                            ThreadPool& pool) {
  PACKSTONE_CHECK_OK(check_ids(ids));
  PACKSTONE_CHECK_OK(check_view(x, kExperts, "x"));
  try {
    PACKSTONE_TRY(PlacedArray result, experts_whole(w, ids.dims, ids.values, x, pool));
    if (result.terms || result.placement.axis != Placement::kWhole) return result.whole();
    return std::move(result.shards[0]);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kExperts, "result", "too little memory",
                "the result, the rows of x and one panel per thread");
  }
}

}  // namespace packstone
