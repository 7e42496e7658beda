// Encoders of the formats of folders whose scales belong to more than a group of a row, or whose
// producers have a rule of their own: FP8, bitsandbytes, QQQ, MX and NVFP4.
#pragma once

#include <string_view>

#include "packstone/base/matrix_view.h"
#include "packstone/base/thread_pool.h"
#include "packstone/quantize/quantizer.h"

namespace packstone {

enum class EncodeMode {
  kBest,    // ours: scales by a search for the least squared error, never worse than parity's
  kParity,  // the rule of the format's producer
};

// folder_encode(weight, target, params, mode, pool, subject): the weight in a format that
// folder_encode_supports.
//   fp8, fp8-divisor, fp8-e8m0 of every kind: one scale for params.group_rows x group_cols weights
//   bnb-nf4, bnb-fp4, nested or not, bnb-int8; params of the 4-bit ones: bnb_4bit_params, with the
//     offset of nested statistics as nested_offset gives it
//   qqq, qqq-g128; mxfp4, mlx-mxfp8, mlx-nvfp4, ct-nvfp4, modelopt-nvfp4
// Shapes: weight [rows, cols], finite, at least one value.
// Exact: kParity, with what is not taken over of the producers:
//   fp8   GPTQModel 7.7 (divisor), Hugging Face FP8 (blocks), compressed-tensors 0.20 (rows,
//         tensor). A multiplier that would be infinite is the largest finite one.
//   bnb   bitwise, bitsandbytes 0.50 on CPU in float32, but a zero row of int8 has zero codes
//   qqq   GPTQModel 7.7 without error feedback; a ratio beyond binary16 is its largest number
//   mx    bitwise, mx.quantize of MLX 0.32, but a scale below 2^-127 is 2^-127 (MLX wraps)
//   nvfp4 with a scale of the tensor: its largest group has the largest scale, ties to even
// kBest: sum (w - decoded)^2 of every group of one scale is at most parity's.
// Errors: kUnsupported for another format; kInvalidInput for an illegal shape; kNotRepresentable
//         for a value that is not finite, or beyond what the scales hold, naming row and column;
//         kExhausted.
// Cost: codes, and 24 bytes for a group of a row. Threads: the pool; same bits for any size of it.
Result<Quantized> folder_encode(const MatrixView& weight, FormatId target,
                                const FormatParams& params, EncodeMode mode, ThreadPool& pool,
                                std::string_view subject);

// Whether folder_encode has an encoder for a format.
bool folder_encode_supports(FormatId target);

// nested_offset(weight, block): what bitsandbytes subtracts from the statistics of a weight in
// blocks: their mean, summed in float64 in order, rounded once. Shapes: any. Errors: none: NaN of
// values that are not finite. Cost: one pass.
float nested_offset(const MatrixView& weight, std::int32_t block);

}  // namespace packstone
