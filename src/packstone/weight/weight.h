// The typed weight: a float tensor [..., n, k], n outputs by k inputs, whose values are stored in a
// packed format and stay so. Its meaning is dequant, its product apply, and rows of it are taken
// and moved as bytes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "packstone/base/thread_pool.h"
#include "packstone/format/packed_weight.h"
#include "packstone/weight/array.h"

namespace packstone {

struct WeightState;

// One stored part and its name: "codes", "scales", "blocks", or a plane's suffix without its dot.
struct NamedPart {
  std::string name;
  ByteArray bytes;
};

// The cases of a weight, with their parts.
struct Mxfp4Parts {
  ByteArray codes;   // [..., n, k / 2]: value 2 i in byte i's low nibble, 2 i + 1 in its high one
  ByteArray scales;  // [..., n, k / 32]
};
struct Mxfp4BlocksParts {
  ByteArray blocks;  // [..., n, k / 32 * 17]
};
struct Q8_0Parts {
  ByteArray blocks;  // [..., n, k / 32 * 34]
};
struct Q4_KParts {
  ByteArray blocks;  // [..., n, k / 256 * 144]
};
struct Q6_KParts {
  ByteArray blocks;  // [..., n, k / 256 * 210]
};
struct PlaneParts {  // every other layout of the registry
  FormatId format{};
  FormatParams params;
  std::vector<NamedPart> planes;  // of each packed weight in turn
};
using WeightParts =
    std::variant<Mxfp4Parts, Mxfp4BlocksParts, Q8_0Parts, Q4_KParts, Q6_KParts, PlaneParts>;

// Where the parts of a weight, or the values of a result, lie on a set of host devices: whole on
// each of them, or cut along one axis. A host device is an index that owns memory of its own.
struct Placement {
  int devices = 1;
  int axis = kWhole;  // of the logical shape; whole: not cut
  static constexpr int kWhole = -1;
  static Placement whole(int devices) { return {devices, kWhole}; }
  static Placement cut(int devices, int axis) { return {devices, axis}; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

// A weight. Immutable; copies share the bytes. Made by its constructors, quantize_q8_0, take, place
// and walk only.
class Weight {
 public:
  // mxfp4(codes, scales): MXFP4 with its scales apart, codes [..., n, k / 2] and scales
  // [..., n, k / 32], on one device. mxfp4_blocks(blocks): GGUF's blocks, [..., n, k / 32 * 17].
  // Values follow OCP MX where ggml does not: code 8 is -0.0, scale byte 255 makes its group NaN.
  // Errors, cost: as q8_0.
  static Result<Weight> mxfp4(ByteArray codes, ByteArray scales);
  static Result<Weight> mxfp4_blocks(ByteArray blocks);

  // q8_0(blocks), q4_k, q6_k: the weight of blocks in GGUF's layouts, [..., n, k / 32 * 34],
  // [..., n, k / 256 * 144] and [..., n, k / 256 * 210]. The layout is the caller's to know: a
  // shape does not tell one from the other.
  // Errors: kInvalidInput, naming the part, for a rank below 2, a last axis that is not whole
  // blocks, or bytes that are not the shape's.
  // Cost: no byte is read or copied. Threads: safe, as all of this class.
  static Result<Weight> q8_0(ByteArray blocks);
  static Result<Weight> q4_k(ByteArray blocks);
  static Result<Weight> q6_k(ByteArray blocks);

  // from(packed, leading): the weight [leading..., n, k] of a packed weight whose rows are those of
  // all matrices below each other: rows = product(leading) * n.
  // from(list, leading): the same of one packed weight per matrix, all of one format, shape and
  // parameters.
  // Errors: kInvalidInput where rows, counts or formats do not fit. Cost: no byte is read.
  static Result<Weight> from(PackedWeight packed, std::span<const std::int64_t> leading = {});
  static Result<Weight> from(std::vector<PackedWeight> matrices,
                             std::span<const std::int64_t> leading);

  // The logical shape [..., n, k].
  const Dims& shape() const;
  std::int64_t n() const;
  std::int64_t k() const;
  // "mxfp4", "mxfp4_blocks", "q8_0", "q4_k", "q6_k", or the format's name.
  std::string_view case_name() const;
  FormatId format() const;
  const FormatParams& params() const;
  Placement placement() const;
  // Bytes of all parts on a device.
  std::uint64_t bytes(int device = 0) const;
  // The parts as they lie on a device of the placement.
  WeightParts parts(int device = 0) const;

  const WeightState& state() const { return *state_; }  // of this room

 private:
  friend struct WeightMaker;
  explicit Weight(std::shared_ptr<const WeightState> state) : state_(std::move(state)) {}
  std::shared_ptr<const WeightState> state_;
};

// dequant(w, type, pool) is w's values, each rounded once to type; whole, wherever w lies.
// Shapes: [..., n, k]. Exact: rounded: the float32 values that the format's header defines, bit for
// bit at float32 and float64. Errors: kExhausted.
Result<Array> dequant(const Weight& w, ValueType type, ThreadPool& pool);

// take(w, axis, positions): the rows (axis rank - 2) or matrices (a leading axis) of w at the
// positions, as bytes. A position out of range, a negative one too, gives zero bytes.
// Shapes: w's, with the axis as long as the positions. axis may count from the end: -2 is n.
// Exact: bitwise; no value is decoded and nothing but the taken rows is read.
// Errors: kInvalidInput where axis is k or no axis of w, or where the layout has no such shape;
// kUnsupported for a position out of range where rows share words; kNotRepresentable where rows
// share parameters that differ; kExhausted.
Result<Weight> take(const Weight& w, int axis, std::span<const std::int64_t> positions);

// What walk calls for each part of a weight, in order: the case's name, the part's name, and the
// part; what it returns takes the part's place.
using PartVisitor = std::function<Result<ByteArray>(std::string_view case_name,
                                                    std::string_view part, const ByteArray& bytes)>;

// walk(w, visit) rebuilds w from what the visitor returns, as w's constructor does.
// Errors: the visitor's; kInvalidInput where the returned parts do not fit together, naming walk
// and the part. A weight that is not one of the named cases keeps its shapes; so does a cut one.
Result<Weight> walk(const Weight& w, const PartVisitor& visit);

// What a quantizer did not keep.
struct BlockLoss {
  std::int64_t zero_scale = 0;  // stored scale 0 beside quants that are not: decodes to zeros
  std::int64_t underflow = 0;   // all zero bytes although a value was not zero
  std::int64_t infinite = 0;    // stored scale infinite
  std::int64_t nan = 0;         // stored scale NaN
};
struct QuantizedQ8_0 {
  Weight weight;
  BlockLoss loss;
};

// quantize_q8_0(x, pool): x [..., n, k] as Q8_0; x is read at float32 (float64 rounded once).
// Exact: bitwise, ggml's quantize_row_q8_0_ref on blocks without NaN; a NaN makes its whole block
// NaN. Same bytes for any thread count and instruction set.
// Errors: kInvalidInput for a rank below 2 or k not a multiple of 32; kExhausted.
Result<QuantizedQ8_0> quantize_q8_0(const ArrayView& x, ThreadPool& pool);

}  // namespace packstone
