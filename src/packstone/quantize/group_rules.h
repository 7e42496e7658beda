// Round-to-nearest rules of single groups: from values to a code per value and stored parameters.
// All arithmetic is binary32 in the order written; finite or not, every input has a defined result.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/format/packed_weight.h"

namespace packstone {

// quantize_q8_0(x, codes, raw): d = max|x| / 127, code = 128 + round_half_away(x * (1 / d)).
// The reciprocal is of the float32 d; the stored d is its nearest binary16. Where d or 1 / d is
// not a finite number all codes are 128 (zero). A NaN in x makes d NaN and all codes 128.
// Shapes: x [32], codes [32]. Exact: bitwise, ggml 0.20 quantize_row_q8_0_ref on blocks without
// NaN.
// Source: ggml-quants.c.
void quantize_q8_0(std::span<const float> x, std::span<std::uint32_t> codes, RawParams& raw);

// quantize_q4_0: d = (the first value of largest magnitude) / -8,
// code = min(15, trunc(x * (1 / d) + 8.5)). Where 1 / d is not finite all codes are 8.
// Shapes, exactness, source: as quantize_q8_0; quantize_row_q4_0_ref.
void quantize_q4_0(std::span<const float> x, std::span<std::uint32_t> codes, RawParams& raw);

// quantize_q4_1: d = (max - min) / 15, m = min, code = min(15, trunc((x - min) * (1 / d) + 0.5)).
// Where 1 / d is not finite all codes are 0.
// Shapes, exactness, source: as quantize_q8_0; quantize_row_q4_1_ref.
void quantize_q4_1(std::span<const float> x, std::span<std::uint32_t> codes, RawParams& raw);

// quantize_mlx_affine(x, bits, metadata, codes, raw): MLX's rule: the step is max((hi - lo) / n,
// 1e-7) with n = 2^bits - 1, made so that the value 0 lies on a code and the value of largest
// magnitude, the edge, is the offset; the step is negative when the edge is hi. Scale and offset
// are rounded to the metadata type first, and codes are chosen against the rounded ones:
// code = clamp(rint((x - offset) / scale), 0, n); 0 where the rounded scale is zero or not finite,
// or x is not.
// Shapes: x [group], codes [group]. Exact: the scale and offset of MLX 0.32 on CPU, bit for bit;
// codes differ from MLX's where rounding the scale moved the nearest code.
// Source: mlx/backend/cpu/quantized.cpp.
void quantize_mlx_affine(std::span<const float> x, int bits, FloatType metadata,
                         std::span<std::uint32_t> codes, RawParams& raw);

}  // namespace packstone
