#include "packstone/weight/weight.h"

#include "packstone/base/limits.h"
#include "packstone/format/registry.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

// The cases of one part of blocks.
struct BlockCase {
  WeightCase kind;
  std::string_view name;
  std::string_view where;
  FormatId format;
  std::int64_t block_cols, block_bytes;
};

template <class F>
constexpr BlockCase block_case(WeightCase kind, std::string_view name, std::string_view where) {
  return {kind, name, where, kFormatId<F>, F::kBlockCols, F::kBlockBytes};
}

constexpr BlockCase kMxfp4BlocksCase =
    block_case<GgufMxfp4>(WeightCase::kMxfp4Blocks, "mxfp4_blocks", "weight.mxfp4_blocks");
constexpr BlockCase kQ8_0Case = block_case<GgufQ8_0>(WeightCase::kQ8_0, "q8_0", "weight.q8_0");
constexpr BlockCase kQ4_KCase = block_case<GgufQ4_K>(WeightCase::kQ4_K, "q4_k", "weight.q4_k");
constexpr BlockCase kQ6_KCase = block_case<GgufQ6_K>(WeightCase::kQ6_K, "q6_k", "weight.q6_k");
constexpr BlockCase kBlockCases[] = {kMxfp4BlocksCase, kQ8_0Case, kQ4_KCase, kQ6_KCase};

// A part's shape, whatever its layout.
Status check_part(const ByteArray& part, std::string_view where, std::string_view name) {
  const auto count = element_count(part.dims);
  if (part.dims.size() < 2 || !count)
    return fail(ErrorCode::kInvalidInput, where, name, "shape " + dims_text(part.dims),
                "[..., n, bytes of a row]: 2 to 8 axes of at least 0");
  if (static_cast<std::uint64_t>(*count) != part.bytes.size())
    return fail(ErrorCode::kInvalidInput, where, name, fmt::format("{} bytes", part.bytes.size()),
                fmt::format("{} for shape {}", *count, dims_text(part.dims)));
  return {};
}

Result<Weight> of_blocks(const BlockCase& kind, ByteArray blocks) {
  constexpr std::string_view kPart = "blocks";
  PACKSTONE_CHECK_OK(check_part(blocks, kind.where, kPart));
  const std::int64_t row_bytes = blocks.dims.back();
  if (row_bytes % kind.block_bytes != 0)
    return fail(ErrorCode::kInvalidInput, kind.where, kPart, "shape " + dims_text(blocks.dims),
                fmt::format("a last axis that is a multiple of {}", kind.block_bytes),
                "the last axis counts bytes of blocks, not values");
  WeightState state{kind.kind, std::move(blocks.dims), {}, {}, {}};
  state.dims.back() = row_bytes / kind.block_bytes * kind.block_cols;
  const std::int64_t count = matrix_count(state.dims), n = state.dims[state.dims.size() - 2];
  PACKSTONE_TRY(PackedWeight packed,
                PackedWeight::bind(kind.format, {count * n, state.dims.back()}, {}, {blocks.bytes},
                                   std::move(blocks.owner), kPart));
  state.slabs.push_back({{std::move(packed)},
                         count,
                         std::max<std::int64_t>(count, 1),
                         n,
                         state.dims.back(),
                         0,
                         state.dims.back()});
  return WeightMaker::make(std::move(state));
}

constexpr std::string_view kFrom = "weight.from";

Result<WeightState> planes_state(Shape matrix, std::span<const std::int64_t> leading) {
  WeightState state;
  state.dims.assign(leading.begin(), leading.end());
  state.dims.push_back(matrix.rows);
  state.dims.push_back(matrix.cols);
  if (!element_count(state.dims))
    return fail(ErrorCode::kInvalidInput, kFrom, "leading axes", "shape " + dims_text(state.dims),
                "at most 8 axes and 2^48 elements");
  return state;
}

// The part's name: the plane's suffix without its dot; GGUF's one plane has none.
std::string plane_name(const FormatInfo& format, int plane) {
  const std::string_view suffix = format.plane_suffix[static_cast<std::size_t>(plane)];
  if (suffix.empty()) return format.scheme == SchemeKind::kFloat ? "values" : "blocks";
  return std::string(suffix.substr(suffix.find_first_not_of("._")));
}

}  // namespace

std::int64_t matrix_count(std::span<const std::int64_t> dims) {
  std::int64_t count = 1;
  for (const std::int64_t axis : dims.first(dims.size() - 2)) count *= axis;
  return count;
}

Dims WeightState::local_dims(int device) const {
  Dims local = dims;
  if (is_cut())
    local[static_cast<std::size_t>(placement.axis)] =
        ends[static_cast<std::size_t>(device) + 1] - ends[static_cast<std::size_t>(device)];
  return local;
}

std::string_view case_name_of(const WeightState& state) {
  if (state.kind == WeightCase::kMxfp4) return "mxfp4";
  for (const BlockCase& one : kBlockCases)
    if (one.kind == state.kind) return one.name;
  return state.like().format().name;
}

std::optional<int> find_axis(int axis, std::size_t rank) {
  const int count = static_cast<int>(rank);
  const int at = axis < 0 ? axis + count : axis;
  if (at < 0 || at >= count) return std::nullopt;
  return at;
}

Result<Weight> Weight::mxfp4(ByteArray codes, ByteArray scales) {
  constexpr std::string_view kWhere = "weight.mxfp4";
  PACKSTONE_CHECK_OK(check_part(codes, kWhere, "codes"));
  PACKSTONE_CHECK_OK(check_part(scales, kWhere, "scales"));
  if (codes.dims.back() % 16 != 0)
    return fail(ErrorCode::kInvalidInput, kWhere, "codes", "shape " + dims_text(codes.dims),
                "[..., n, k / 2] with k a multiple of 32");
  WeightState state{WeightCase::kMxfp4, codes.dims, {}, {}, {}};
  state.dims.back() *= 2;
  Dims need = codes.dims;
  need.back() /= 16;
  if (scales.dims != need || scales.device != codes.device)
    return fail(ErrorCode::kInvalidInput, kWhere, "scales",
                fmt::format("shape {} on device {}", dims_text(scales.dims), scales.device),
                fmt::format("{} on device {}, beside codes {}", dims_text(need), codes.device,
                            dims_text(codes.dims)));
  const std::int64_t count = matrix_count(state.dims), n = state.dims[state.dims.size() - 2];
  const std::int64_t k = state.dims.back();
  using Owners = std::array<std::shared_ptr<const void>, 2>;
  auto owners = std::make_shared<const Owners>(Owners{codes.owner, scales.owner});
  PACKSTONE_TRY(PackedWeight packed,
                PackedWeight::bind(kFormatId<Mxfp4>, {count * n, k}, {},
                                   {codes.bytes, scales.bytes}, std::move(owners), "codes"));
  state.slabs.push_back({{std::move(packed)}, count, std::max<std::int64_t>(count, 1), n, k, 0, k});
  return WeightMaker::make(std::move(state));
}

Result<Weight> Weight::mxfp4_blocks(ByteArray blocks) {
  return of_blocks(kMxfp4BlocksCase, std::move(blocks));
}
Result<Weight> Weight::q8_0(ByteArray blocks) {
  return of_blocks(kQ8_0Case, std::move(blocks));
}
Result<Weight> Weight::q4_k(ByteArray blocks) {
  return of_blocks(kQ4_KCase, std::move(blocks));
}
Result<Weight> Weight::q6_k(ByteArray blocks) {
  return of_blocks(kQ6_KCase, std::move(blocks));
}

Result<Weight> Weight::from(PackedWeight packed, std::span<const std::int64_t> leading) {
  Dims dims(leading.begin(), leading.end());
  const auto count = element_count(dims);
  const Shape shape = packed.shape();
  if (!count || (*count == 0 ? shape.rows != 0 : shape.rows % *count != 0))
    return fail(ErrorCode::kInvalidInput, kFrom, "leading axes", dims_text(leading),
                fmt::format("axes whose product divides {} rows", shape.rows));
  const std::int64_t n = *count == 0 ? 0 : shape.rows / *count;
  PACKSTONE_TRY(WeightState state, planes_state({n, shape.cols}, leading));
  state.slabs.push_back({{std::move(packed)},
                         *count,
                         std::max<std::int64_t>(*count, 1),
                         n,
                         shape.cols,
                         0,
                         shape.cols});
  return WeightMaker::make(std::move(state));
}

Result<Weight> Weight::from(std::vector<PackedWeight> matrices,
                            std::span<const std::int64_t> leading) {
  const auto count = element_count(leading);
  if (matrices.empty() || !count || *count != static_cast<std::int64_t>(matrices.size()))
    return fail(ErrorCode::kInvalidInput, kFrom, "leading axes", dims_text(leading),
                fmt::format("axes whose product is the list's {}, at least 1", matrices.size()));
  const PackedWeight& first = matrices[0];
  for (std::size_t i = 1; i < matrices.size(); ++i)
    if (matrices[i].id() != first.id() || matrices[i].shape() != first.shape() ||
        matrices[i].params() != first.params())
      return fail(ErrorCode::kInvalidInput, kFrom, fmt::format("matrix {}", i),
                  fmt::format("{} of [{}, {}]", matrices[i].format().name, matrices[i].shape().rows,
                              matrices[i].shape().cols),
                  "the format, shape and parameters of the first matrix");
  const Shape shape = first.shape();
  PACKSTONE_TRY(WeightState state, planes_state(shape, leading));
  state.slabs.push_back({std::move(matrices), *count, 1, shape.rows, shape.cols, 0, shape.cols});
  return WeightMaker::make(std::move(state));
}

const Dims& Weight::shape() const {
  return state_->dims;
}
std::int64_t Weight::n() const {
  return state_->dims[state_->dims.size() - 2];
}
std::int64_t Weight::k() const {
  return state_->dims.back();
}
std::string_view Weight::case_name() const {
  return case_name_of(*state_);
}
FormatId Weight::format() const {
  return state_->like().id();
}
const FormatParams& Weight::params() const {
  return state_->like().params();
}
Placement Weight::placement() const {
  return state_->placement;
}

std::uint64_t Weight::bytes(int device) const {
  std::uint64_t bytes = 0;
  for (const PackedWeight& packed : state_->slab(device).packed) bytes += packed.bytes();
  return bytes;
}

WeightParts Weight::parts(int device) const {
  return slab_parts(state_->kind, state_->slab(device), state_->local_dims(device), device);
}

namespace {

// The plane's shape as a folder would have it; the leading axes where its rows are all matrices'.
Dims part_dims(const Slab& slab, const PackedWeight& packed, int plane, const Dims& dims) {
  const PlaneDims all = plane_dims(packed.id(), plane, packed.shape(), packed.params());
  Dims result(all.dim, all.dim + all.rank);
  if (slab.packed.size() == 1 && all.rank > 0 && all.dim[0] == slab.count * slab.rows) {
    result.erase(result.begin());
    result.insert(result.begin(), dims.begin(), dims.end() - 1);
  }
  return result;
}

// A plane of bytes of a named case: [..., n, row_bytes].
ByteArray case_part(const Slab& slab, int plane, const Dims& dims, std::int64_t row_bytes,
                    int device) {
  const PackedWeight& packed = slab.packed[0];
  ByteArray part{dims, packed.plane(plane), packed.owner(), device};
  part.dims.back() = row_bytes;
  return part;
}

}  // namespace

WeightParts slab_parts(WeightCase kind, const Slab& slab, const Dims& dims, int device) {
  if (kind == WeightCase::kMxfp4)
    return Mxfp4Parts{case_part(slab, 0, dims, slab.cols / 2, device),
                      case_part(slab, 1, dims, slab.cols / 32, device)};
  for (const BlockCase& one : kBlockCases) {
    if (one.kind != kind) continue;
    ByteArray blocks =
        case_part(slab, 0, dims, slab.cols / one.block_cols * one.block_bytes, device);
    if (kind == WeightCase::kMxfp4Blocks) return Mxfp4BlocksParts{std::move(blocks)};
    if (kind == WeightCase::kQ8_0) return Q8_0Parts{std::move(blocks)};
    if (kind == WeightCase::kQ4_K) return Q4_KParts{std::move(blocks)};
    return Q6_KParts{std::move(blocks)};
  }
  const PackedWeight& first = slab.packed[0];
  PlaneParts parts{first.id(), first.params(), {}};
  for (const PackedWeight& packed : slab.packed)
    for (int plane = 0; plane < packed.plane_count(); ++plane)
      parts.planes.push_back(
          {plane_name(packed.format(), plane),
           {part_dims(slab, packed, plane, dims), packed.plane(plane), packed.owner(), device}});
  return parts;
}

}  // namespace packstone
