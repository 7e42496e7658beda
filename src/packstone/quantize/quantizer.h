// From values to packed weights: the values change, and the report says by how much.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "packstone/base/thread_pool.h"
#include "packstone/transcode/transcode.h"

namespace packstone {

// Gives the values of one row: fills out [cols]. Must be safe to call from several threads.
using RowSource = std::function<void(std::int64_t row, std::span<float> out)>;

// How far the quantized values are from the source's.
struct QuantizeReport {
  double relative_rms = 0;  // sqrt(sum (w' - w)^2 / sum w^2)
  double max_abs = 0;
  std::int64_t row = -1, col = -1;  // where max_abs is
  std::int64_t lost_groups = 0;     // groups whose scale became zero although a value was not
};

// rtn(source, shape, target, params, pool): round to nearest, one group at a time.
//   mlx.affine.w*: MLX's rule (edge on the grid), codes chosen against the stored (rounded) scale
//   gguf.q4_0, q4_1, q8_0: ggml's reference rule, byte for byte
// Errors: kInvalidInput for an illegal shape; kNotRepresentable for NaN or infinity in the source,
//         naming row and column (a quantizer never writes one); kUnsupported for a format without a
//         rule; kExhausted.
// Same input: same bytes for any thread count.
struct Quantized {
  PackedWeight weight;
  QuantizeReport report;
};
Result<Quantized> rtn(const RowSource& source, Shape shape, FormatId target,
                      const FormatParams& params, ThreadPool& pool, std::string_view subject);

// Whether rtn has a rule for a format.
bool rtn_supports(FormatId target);

}  // namespace packstone
