// MXFP4 with codes and scales apart, 4.25 bits per weight. Producers: MLX 0.32 (mx.quantize mode
// "mxfp4"), gpt-oss (`_blocks`, `_scales`), compressed-tensors; they spell the planes differently.
//
//   weight: bytes; code of column c is nibble c % 2 (0 = low) of byte c / 2 of the row
//   scales: one E8M0 byte per 32 columns
//
// Decode: as gguf_mxfp4.h. Legal: cols a multiple of 32.
#pragma once

#include <array>

#include "packstone/format/e2m1.h"
#include "packstone/format/format.h"

namespace packstone {

struct Mxfp4 {
  static constexpr std::string_view kName = "mx.mxfp4";
  static constexpr std::string_view kLayout = "mxfp4";
  static constexpr std::string_view kSource =
      "OCP MX v1.0; MLX 0.32, mlx/backend/cpu/quantized.cpp";
  using Scheme = E2M1Scheme;
  static constexpr int kCodeBits = 4;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, 32, 1};
  static constexpr std::array<std::int32_t, 1> kGroups{32};
  static constexpr std::array<PlaneSpec, 2> kPlanes{{{".weight", "U32"}, {".scales", "U8"}}};
  static constexpr std::array<ParamSpec, 1> kParams{{
      {ParamKind::kScale, ParamCoding::kE8M0, 8},
  }};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols != 0 && params.group_cols != 32) return "groups of 32 columns";
    return shape.cols % 32 == 0 ? nullptr : "cols a multiple of 32";
  }
  static constexpr std::int64_t group_cols(const FormatParams&) { return 32; }
  static constexpr std::int64_t param_cols(int, const FormatParams&) { return 32; }
  static constexpr std::uint64_t plane_bytes(int plane, Shape shape, const FormatParams&) {
    return static_cast<std::uint64_t>(shape.rows) *
           static_cast<std::uint64_t>(plane == 0 ? shape.cols / 2 : shape.cols / 32);
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams&) {
    return plane_dims_of(shape.rows, plane == 0 ? shape.cols / 8 : shape.cols / 32);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col / 32 * 32) * 4;
  }
  static constexpr PieceList tile_code(int, int c) {
    return one_piece(0, static_cast<std::uint64_t>(c) * 4, 4);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int, std::int64_t row,
                                   std::int64_t unit) {
    return one_piece(1, static_cast<std::uint64_t>(row * (shape.cols / 32) + unit) * 8, 8);
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    return {e8m0_to_float(raw.pattern[0]), kNoOffset, 0};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    return group.center == 0 && group.offset == 0.0f &&
           float_to_e8m0_exact(group.scale, raw.pattern[0]);
  }
};

static_assert(CodedFormat<Mxfp4>);
static_assert(proves_bijection<Mxfp4, 1024>({2, 64}, {}));

}  // namespace packstone
