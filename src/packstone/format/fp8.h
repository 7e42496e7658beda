// FP8 weights with one scale per tensor, row or block of rows and columns.
// Producers: GPTQModel 7.7 (the scale divides: config "weight_scale_semantics": "inverse");
// DeepSeek and Hugging Face fine-grained FP8, compressed-tensors "float-quantized" (it multiplies).
// The tensor of scales is called weight_scale_inv, weight_scale or scale, whatever it does.
//
//   weight: [rows, cols] bytes, one code each (fp8_kinds.h)
//   scales: row-major grid of ceil(rows / group_rows) x ceil(cols / group_cols)
//     tensor  group_rows = rows, group_cols = cols: []
//     row     group_rows = 1, group_cols = cols: [rows]
//     block   any other: the grid; blocks at the lower and right edges may be partial
//
// Decode: multiplier w = fl(scale * level), divisor w = fl(level / scale), in binary32; a scale of
// 16 bits is widened first, which is exact, and so is an E8M0 scale (255 is NaN).
// Legal: multiplier, any shape; divisor, whole blocks only, as its producer writes.
#pragma once

#include <array>

#include "packstone/format/fp8_kinds.h"
#include "packstone/format/group_params.h"

namespace packstone {

// What the scales do, and their type in the file.
enum class Fp8Scale : std::uint8_t { kMultiplier, kDivisor, kE8M0 };

template <Fp8Kind Kind, Fp8Scale Scale>
struct Fp8Blocks
    : TensorPlanes<Fp8Blocks<Kind, Scale>>,
      ScaleParams<Scale == Fp8Scale::kE8M0 ? ParamCoding::kE8M0 : ParamCoding::kMetadata> {
  static constexpr bool kDivides = Scale == Fp8Scale::kDivisor;
  static constexpr int kIndex = 3 * static_cast<int>(Kind) + static_cast<int>(Scale);
  static constexpr std::string_view
      kName =
          std::array<std::string_view, 12>{
              "fp8.e4m3fn",   "fp8.e4m3fn.divisor",   "fp8.e4m3fn.e8m0",
              "fp8.e5m2",     "fp8.e5m2.divisor",     "fp8.e5m2.e8m0",
              "fp8.e4m3fnuz", "fp8.e4m3fnuz.divisor", "fp8.e4m3fnuz.e8m0",
              "fp8.e5m2fnuz", "fp8.e5m2fnuz.divisor", "fp8.e5m2fnuz.e8m0"}[kIndex];
  static constexpr std::string_view kLayout = std::array<std::string_view, 12>{
      "fp8",          "fp8-divisor",          "fp8-e8m0",
      "fp8-e5m2",     "fp8-e5m2-divisor",     "fp8-e5m2-e8m0",
      "fp8-e4m3fnuz", "fp8-e4m3fnuz-divisor", "fp8-e4m3fnuz-e8m0",
      "fp8-e5m2fnuz", "fp8-e5m2fnuz-divisor", "fp8-e5m2fnuz-e8m0"}[kIndex];
  static constexpr std::string_view kSource =
      kDivides ? "GPTQModel 7.7, FP8 (weight_scale_semantics inverse)"
               : "DeepSeek-V3 and Hugging Face FP8; compressed-tensors 0.20, float-quantized";
  using Scheme = std::conditional_t<kDivides, Fp8DivisorScheme<Kind>, Fp8Scheme<Kind>>;
  static constexpr int kCodeBits = 8;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, 1, 1};
  static constexpr std::array<std::int32_t, 4> kGroups{kWholeRow, 32, 64, 128};
  static constexpr std::array<PlaneSpec, 2> kPlanes{
      {{".weight", Kind == Fp8Kind::kE4M3FN     ? "F8_E4M3"
                   : Kind == Fp8Kind::kE5M2     ? "F8_E5M2"
                   : Kind == Fp8Kind::kE4M3FNUZ ? "F8_E4M3FNUZ"
                                                : "F8_E5M2FNUZ"},
       {".weight_scale_inv", Scale == Fp8Scale::kE8M0 ? "F8_E8M0" : kMetadataType}}};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols < 1 || params.group_rows < 1)
      return "blocks of at least one row and one column";
    if (kDivides && (shape.rows % params.group_rows != 0 || shape.cols % params.group_cols != 0))
      return "rows and cols multiples of the block's";
    return nullptr;
  }
  static constexpr std::int64_t group_cols(const FormatParams& params) {
    return params.group_cols > 0 ? params.group_cols : 1;
  }
  static constexpr std::int64_t group_rows(const FormatParams& params) {
    return params.group_rows > 0 ? params.group_rows : 1;
  }
  static constexpr std::int64_t param_cols(int, const FormatParams& params) {
    return group_cols(params);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    if (plane == 0) return plane_dims_of(shape.rows, shape.cols);
    const std::int64_t high = ceil_div(shape.rows, group_rows(params));
    const std::int64_t wide = ceil_div(shape.cols, group_cols(params));
    if (params.group_cols != shape.cols) return plane_dims_of(high, wide);
    if (params.group_rows == 1) return plane_dims_of(shape.rows);
    return params.group_rows == shape.rows ? plane_dims_of() : plane_dims_of(high, wide);
  }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col) * 8;
  }
  static constexpr PieceList tile_code(int, int) { return one_piece(0, 0, 8); }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int, std::int64_t row,
                                   std::int64_t unit) {
    const int bits = scale_bits(params);
    const std::int64_t wide = ceil_div(shape.cols, group_cols(params));
    return one_piece(1,
                     static_cast<std::uint64_t>(row / group_rows(params) * wide + unit) *
                         static_cast<std::uint64_t>(bits),
                     bits);
  }
  static constexpr ParamUnit first_use(Shape, const FormatParams& params, int, std::int64_t row,
                                       std::int64_t unit) {
    return {row / group_rows(params) * group_rows(params), unit};
  }

 private:
  static constexpr int scale_bits(const FormatParams& params) {
    return Scale == Fp8Scale::kE8M0 ? 8 : float_bits(params.metadata);
  }
};

template <Fp8Kind Kind>
using Fp8 = Fp8Blocks<Kind, Fp8Scale::kMultiplier>;
template <Fp8Kind Kind>
using Fp8Divisor = Fp8Blocks<Kind, Fp8Scale::kDivisor>;
using Fp8E8M0 = Fp8Blocks<Fp8Kind::kE4M3FN, Fp8Scale::kE8M0>;

static_assert(CodedFormat<Fp8<Fp8Kind::kE4M3FN>>);
static_assert(proves_bijection<Fp8<Fp8Kind::kE5M2>, 1024>({5, 7}, {3, FloatType::kF32, 2}));
static_assert(proves_bijection<Fp8Divisor<Fp8Kind::kE4M3FN>, 1024>({4, 6},
                                                                   {6, FloatType::kF32, 4}));
static_assert(proves_bijection<Fp8E8M0, 1024>({5, 7}, {3, FloatType::kF32, 2}));

}  // namespace packstone
