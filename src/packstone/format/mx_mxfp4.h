// MXFP4 with codes and scales apart, 4.25 bits per weight. Producers: MLX 0.32 (mx.quantize mode
// "mxfp4"), gpt-oss (`_blocks`, `_scales`), compressed-tensors; they spell the planes differently.
//
//   weight: bytes; code of column c is nibble c % 2 (0 = low) of byte c / 2 of the row
//   scales: one E8M0 byte per 32 columns
//
// Decode: as gguf_mxfp4.h. Legal: cols a multiple of 32.
#pragma once

#include "packstone/format/group_params.h"
#include "packstone/format/split_rows.h"

namespace packstone {

struct Mxfp4 : SplitRows<4, 32>, TensorPlanes<Mxfp4>, ScaleParams<ParamCoding::kE8M0> {
  static constexpr std::string_view kName = "mx.mxfp4";
  static constexpr std::string_view kLayout = "mxfp4";
  static constexpr std::string_view kSource =
      "OCP MX v1.0; MLX 0.32, mlx/backend/cpu/quantized.cpp";
  using Scheme = E2M1Scheme;
  static constexpr std::array<PlaneSpec, 2> kPlanes{{{".weight", "U32"}, {".scales", "U8"}}};
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams&) {
    return plane_dims_of(shape.rows, plane == 0 ? shape.cols / 8 : shape.cols / 32);
  }
};

static_assert(CodedFormat<Mxfp4>);
static_assert(proves_bijection<Mxfp4, 1024>({2, 64}, {}));

}  // namespace packstone
