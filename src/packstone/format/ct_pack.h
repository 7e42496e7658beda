// compressed-tensors "pack-quantized", 4 or 8 bits, per group or per channel, with or without zero
// points. Producer: compressed-tensors 0.20 (compressors/pack_quantized).
//
//   weight_packed:     [rows, cols * b / 32] words; each row one stream of codes, low bit first,
//                      code = q + 2^(b-1)
//   weight_scale:      [rows, cols / group], or [rows, 1] (channel: one group a row); float32,
//                      float16 or bfloat16
//   weight_zero_point: [ceil(rows * b / 32), cols / group] words, packed along the rows: zero z of
//                      row n and group g is bits [n b % 32, ...) of word [n b / 32, g], z + 2^(b-1)
//   weight_shape:      int64 [2], (rows, cols); read and written with the folder
//
// Decode: w = fl(scale * (q - z)) in binary32 (the producer computes in the type of the scale).
// Legal: cols a multiple of 32 / b and of the group, the group a multiple of 32 / b.
#pragma once

#include <array>
#include <type_traits>

#include "packstone/format/group_params.h"

namespace packstone {

template <int Bits, bool Symmetric>
using CtPackParams =
    std::conditional_t<Symmetric, ScaleParams<ParamCoding::kMetadata, 1 << (Bits - 1)>,
                       ScaleZeroParams<ParamCoding::kMetadata, Bits>>;

template <int Bits, bool Symmetric>
struct CtPack : TensorPlanes<CtPack<Bits, Symmetric>>, CtPackParams<Bits, Symmetric> {
  static_assert(Bits == 4 || Bits == 8);
  static constexpr int kPerWord = 32 / Bits;
  static constexpr std::string_view kName = Bits == 4
                                                ? (Symmetric ? "ct.pack.w4" : "ct.pack_asym.w4")
                                                : (Symmetric ? "ct.pack.w8" : "ct.pack_asym.w8");
  static constexpr std::string_view kLayout = Symmetric ? "ct-pack" : "ct-pack-asym";
  static constexpr std::string_view kSource = "compressed-tensors 0.20, compressors/pack_quantized";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = Bits;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, kPerWord, 1};
  static constexpr std::array<std::int32_t, 5> kGroups{kWholeRow, 16, 32, 64, 128};
  static constexpr std::array<PlaneSpec, 3 - Symmetric> kPlanes = [] {
    std::array<PlaneSpec, 3 - Symmetric> planes;
    planes[0] = {".weight_packed", "I32"};
    planes[1] = {".weight_scale", kMetadataType};
    if (!Symmetric) planes[2 - Symmetric] = {".weight_zero_point", "I32"};
    return planes;
  }();

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols < 1 || params.group_cols % kPerWord != 0)
      return Bits == 4 ? "a group of a multiple of 8 columns"
                       : "a group of a multiple of 4 columns";
    if (shape.cols % params.group_cols != 0) return "cols a multiple of the group";
    return params.group_rows == 1 ? nullptr : "scales of one row each";
  }
  static constexpr std::int64_t group_cols(const FormatParams& params) {
    return params.group_cols > 0 ? params.group_cols : kPerWord;
  }
  static constexpr std::int64_t param_cols(int, const FormatParams& params) {
    return group_cols(params);
  }
  static constexpr std::uint64_t padding_bits(int plane, Shape shape, const FormatParams& params) {
    if (plane != 2) return 0;
    return static_cast<std::uint64_t>((ceil_div(shape.rows, kPerWord) * kPerWord - shape.rows) *
                                      Bits * (shape.cols / group_cols(params)));
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    const std::int64_t groups = shape.cols / group_cols(params);
    if (plane == 0) return plane_dims_of(shape.rows, shape.cols / kPerWord);
    if (plane == 2) return plane_dims_of(ceil_div(shape.rows, kPerWord), groups);
    return plane_dims_of(shape.rows, groups);
  }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * (shape.cols / kPerWord) + col / kPerWord) * 32;
  }
  static constexpr PieceList tile_code(int, int c) {
    return one_piece(0, static_cast<std::uint64_t>(c) * Bits, Bits);
  }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    const std::int64_t groups = shape.cols / group_cols(params);
    if (which == 0) {
      const int bits = float_bits(params.metadata);
      return one_piece(
          1, static_cast<std::uint64_t>(row * groups + unit) * static_cast<std::uint64_t>(bits),
          bits);
    }
    return one_piece(2,
                     static_cast<std::uint64_t>(row / kPerWord * groups + unit) * 32 +
                         static_cast<std::uint64_t>(row % kPerWord) * Bits,
                     Bits);
  }
};

static_assert(CodedFormat<CtPack<4, true>>);
static_assert(CodedFormat<CtPack<8, false>>);
static_assert(proves_bijection<CtPack<4, true>, 2048>({3, 32}, {16, FloatType::kF16}));
static_assert(proves_bijection<CtPack<4, false>, 2048>({3, 32}, {16, FloatType::kBF16}));
static_assert(proves_bijection<CtPack<8, false>, 2048>({5, 16}, {16, FloatType::kF32}));
static_assert(proves_bijection<CtPack<8, true>, 2048>({5, 16}, {16, FloatType::kF32}));

}  // namespace packstone
