// MLX affine, 2, 3, 4, 5, 6 or 8 bits, groups of 32, 64 or 128 along a row.
// Producer: MLX 0.32 (mlx/backend/cpu/quantized.cpp, mx.quantize mode "affine").
//
//   weight: uint32 words; as bytes each row is one stream of codes, low bit first:
//           the code of column c is bits [c * b, (c + 1) * b) of the row
//   scales: [rows, cols / group] of float32, float16 or bfloat16, either sign
//   biases: the same shape and type (the group's offset, not the layer's bias)
//
// Decode: w = fl(fl(scale * q) + offset), as MLX does with float32 operands. With 16-bit scales
// the product is exact, so one rounding remains. Legal: cols a multiple of the group.
#pragma once

#include "packstone/format/group_params.h"

namespace packstone {

template <int Bits>
struct MlxAffine : ChosenGroups,
                   TensorPlanes<MlxAffine<Bits>>,
                   ScaleOffsetParams<ParamCoding::kMetadata> {
  static_assert(Bits == 2 || Bits == 3 || Bits == 4 || Bits == 5 || Bits == 6 || Bits == 8);
  static constexpr char kNameText[] = {'m', 'l', 'x', '.', 'a', 'f',       'f',
                                       'i', 'n', 'e', '.', 'w', '0' + Bits};
  static constexpr std::string_view kName{kNameText, sizeof kNameText};
  static constexpr std::string_view kLayout = "mlx-affine";
  static constexpr std::string_view kSource = "MLX 0.32, mlx/backend/cpu/quantized.cpp";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = Bits;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, 32, 1};
  static constexpr std::array<std::int32_t, 3> kGroups{32, 64, 128};
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".weight", "U32"}, {".scales", kMetadataType}, {".biases", kMetadataType}}};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols != 32 && params.group_cols != 64 && params.group_cols != 128)
      return "a group of 32, 64 or 128 columns";
    return shape.cols % params.group_cols == 0 ? nullptr : "cols a multiple of the group";
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    return plane_dims_of(shape.rows,
                         plane == 0 ? shape.cols * Bits / 32 : shape.cols / params.group_cols);
  }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col / 32 * 32) * Bits;
  }
  static constexpr PieceList tile_code(int, int c) {
    return one_piece(0, static_cast<std::uint64_t>(c) * Bits, Bits);
  }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    const int bits = float_bits(params.metadata);
    return one_piece(1 + which,
                     static_cast<std::uint64_t>(row * (shape.cols / params.group_cols) + unit) *
                         static_cast<std::uint64_t>(bits),
                     bits);
  }
};

static_assert(CodedFormat<MlxAffine<3>>);
static_assert(proves_bijection<MlxAffine<3>, 2048>({2, 64}, {32, FloatType::kF16}));
static_assert(proves_bijection<MlxAffine<4>, 2048>({2, 64}, {64, FloatType::kF32}));

}  // namespace packstone
