// MXFP8, 8.25 bits per weight. Producers: MLX 0.32 (mx.quantize mode "mxfp8"), compressed-tensors
// 0.20 ("mxfp8-quantized"); they spell the planes differently.
//
//   weight: [rows, cols] e4m3fn bytes (MLX: as words);  scales: one E8M0 byte per 32 columns
//
// Decode: w = 2^(scale - 127) * e4m3fn(code); exact, but for what binary32 cannot hold (infinite
// above, rounded below 2^-126). As OCP MX has it, scale byte 255 makes NaN and codes 0x7F and 0xFF
// are NaN; MLX reads 255 as infinite, and its Metal kernels 0x7F as 480, so that nothing but finite
// codes and scales is moved here from other formats. Legal: cols a multiple of 32.
#pragma once

#include "packstone/format/fp8_kinds.h"
#include "packstone/format/group_params.h"
#include "packstone/format/split_rows.h"

namespace packstone {

struct Mxfp8 : SplitRows<8, 32>, TensorPlanes<Mxfp8>, ScaleParams<ParamCoding::kE8M0> {
  static constexpr std::string_view kName = "mx.mxfp8";
  static constexpr std::string_view kLayout = "mlx-mxfp8";
  static constexpr std::string_view kSource =
      "OCP MX v1.0; MLX 0.32, mlx/backend/cpu/quantized.cpp";
  using Scheme = Fp8Scheme<Fp8Kind::kE4M3FN>;
  static constexpr std::array<PlaneSpec, 2> kPlanes{{{".weight", "U32"}, {".scales", "U8"}}};
  static constexpr bool kFiniteOnly = true;
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams&) {
    return plane_dims_of(shape.rows, plane == 0 ? shape.cols / 4 : shape.cols / 32);
  }
};

static_assert(CodedFormat<Mxfp8>);
static_assert(proves_bijection<Mxfp8, 2048>({2, 64}, {}));

}  // namespace packstone
