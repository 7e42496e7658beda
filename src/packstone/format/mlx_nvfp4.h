// NVFP4 with codes and scales apart, 4.5 bits per weight. Producers: MLX 0.32 (mx.quantize mode
// "nvfp4"), compressed-tensors 0.20 ("nvfp4-pack-quantized"), ModelOpt 0.40 (NVFP4).
//
//   weight: code of column c is nibble c % 2 (0 = low) of byte c / 2 of the row
//   scales: one e4m3fn byte per 16 columns, either sign, NaN 0x7F and 0xFF
//   global: one binary32 number for the weight (MLX: none)
//
// Decode in binary32: w = fl(step * e2m1(code)), step = the scale (MLX), fl(scale / global)
// (compressed-tensors), fl(scale * global) (ModelOpt; without weight_scale_2 the number is 1).
// Legal: cols a multiple of 16. ggml reads its scale bytes differently: gguf_nvfp4.h.
#pragma once

#include <bit>

#include "packstone/format/e2m1.h"
#include "packstone/format/fp8_kinds.h"
#include "packstone/format/split_rows.h"

namespace packstone {

enum class Nvfp4Global : std::uint8_t { kNone, kDivisor, kMultiplier };

template <Nvfp4Global Global>
struct Nvfp4 : SplitRows<4, 16>, TensorPlanes<Nvfp4<Global>> {
  static constexpr bool kIsMlx = Global == Nvfp4Global::kNone;
  static constexpr bool kDivides = Global == Nvfp4Global::kDivisor;
  static constexpr std::string_view kName = kIsMlx     ? "mlx.nvfp4"
                                            : kDivides ? "ct.nvfp4"
                                                       : "modelopt.nvfp4";
  static constexpr std::string_view kLayout = kIsMlx     ? "mlx-nvfp4"
                                              : kDivides ? "ct-nvfp4"
                                                         : "modelopt-nvfp4";
  static constexpr std::string_view kSource =
      kIsMlx     ? "MLX 0.32, mlx/backend/cpu/quantized.cpp"
      : kDivides ? "compressed-tensors 0.20, compressors/nvfp4"
                 : "ModelOpt 0.40, NVFP4 (weight_scale, weight_scale_2)";
  using Scheme = E2M1Scheme;
  static constexpr std::array<PlaneSpec, 3 - kIsMlx> kPlanes = [] {
    std::array<PlaneSpec, 3 - kIsMlx> planes;
    planes[0] = {kDivides ? ".weight_packed" : ".weight", kIsMlx ? "U32" : "U8"};
    planes[1] = {kIsMlx ? ".scales" : ".weight_scale", kIsMlx ? "U8" : "F8_E4M3"};
    if (!kIsMlx)
      planes[2 - kIsMlx] = {kDivides ? ".weight_global_scale" : ".weight_scale_2", "F32"};
    return planes;
  }();
  static constexpr std::array<ParamSpec, 2 - kIsMlx> kParams = [] {
    std::array<ParamSpec, 2 - kIsMlx> params;
    params[0] = {ParamKind::kScale, ParamCoding::kE4M3, 8};
    if (!kIsMlx) params[1 - kIsMlx] = {ParamKind::kGlobalScale, ParamCoding::kF32, 32};
    return params;
  }();

  static constexpr std::uint64_t padding_bits(int plane, Shape shape, const FormatParams&) {
    return plane == 2 && (shape.rows == 0 || shape.cols == 0) ? 32 : 0;
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams&) {
    if (plane == 1) return plane_dims_of(shape.rows, shape.cols / 16);
    if (plane == 2) return kDivides ? plane_dims_of(1) : plane_dims_of();
    return plane_dims_of(shape.rows, kIsMlx ? shape.cols / 8 : shape.cols / 2);
  }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    return which == 1 ? one_piece(2, 0, 32) : SplitRows::param(shape, params, which, row, unit);
  }
  static constexpr ParamUnit first_use(Shape, const FormatParams&, int which, std::int64_t row,
                                       std::int64_t unit) {
    return which == 1 ? ParamUnit{0, 0} : ParamUnit{row, unit};
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    float step = fp8_to_float(Fp8Kind::kE4M3FN, raw.pattern[0]);
    const float global = std::bit_cast<float>(raw.pattern[1]);
    if constexpr (kDivides)
      step = step / global;
    else if constexpr (!kIsMlx)
      step = step * global;
    return {step, kNoOffset, 0};
  }
  // With a global scale of 1, the same for every group.
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    if (!kIsMlx) raw.pattern[1] = std::bit_cast<std::uint32_t>(1.0f);
    return group.center == 0 && group.offset == 0.0f &&
           float_to_e4m3fn_exact(group.scale, raw.pattern[0]);
  }
};

using MlxNvfp4 = Nvfp4<Nvfp4Global::kNone>;
using CtNvfp4 = Nvfp4<Nvfp4Global::kDivisor>;
using ModeloptNvfp4 = Nvfp4<Nvfp4Global::kMultiplier>;

static_assert(CodedFormat<MlxNvfp4>);
static_assert(CodedFormat<CtNvfp4>);
static_assert(proves_bijection<MlxNvfp4, 1024>({2, 48}, {}));
static_assert(proves_bijection<CtNvfp4, 1024>({2, 48}, {}));
static_assert(proves_bijection<ModeloptNvfp4, 1024>({2, 48}, {}));

}  // namespace packstone
