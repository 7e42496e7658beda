// GGUF encoders: float rows to every block type of ggml that can be made without a codebook search.
#pragma once

#include <span>
#include <string_view>

#include "packstone/base/matrix_view.h"
#include "packstone/quantize/quantizer.h"

namespace packstone {

enum class GgufMode {
  // Ours: a wider search over stored scales (and minimums), codes chosen against the stored
  // numbers; of every block the better of this and parity's, by its weighted error.
  kBest,
  // ggml's reference quantizer, byte for byte.
  kParity,
};

// What a column's error counts, where best has the choice. sigma2 is the mean of x^2 over 256
// columns (the row for types of 32).
enum class GgufWeighting {
  // kImportance where there is an importance, else kImportanceMagnitude: each the lower KL
  // divergence of a small model in Q4_0, where the other stands in its place.
  kAuto,
  kImportance,           // importance[col]: the diagonal of the layer's Hessian; 1 without it
  kImportanceMagnitude,  // importance[col] * sqrt(sigma2 + x^2): ggml's heuristic
};

struct GgufEncodeOptions {
  GgufMode mode = GgufMode::kBest;
  // Mean square of each input column [cols], finite, >= 0; empty: all columns alike. In best mode a
  // column counts at least 2^-20 of the largest of its block, and all alike where all are zero.
  std::span<const float> importance = {};
  GgufWeighting weighting = GgufWeighting::kAuto;
};

struct GgufEncoded {
  PackedWeight weight;
  QuantizeReport report;
  double weighted_rms = 0;       // sqrt(sum i (w' - w)^2 / sum i w^2), i the importance (or 1)
  std::int64_t blocks = 0;       // of the weight
  std::int64_t from_search = 0;  // of them: taken from the search of best, being better than parity
};

// gguf_encode(source, shape, target, options, pool, subject): the weight in a GGUF block type:
// Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, TQ1_0, TQ2_0, IQ4_NL, IQ4_XS, MXFP4,
// NVFP4.
// Shapes: source gives shape.rows rows of shape.cols floats, cols a multiple of the block.
// Exact: kParity: bitwise, ggml 0.26 ggml_quantize_chunk compiled without contraction, wherever
//        the C of its reference is defined. kBest: per block sum w (x - decoded)^2 is at most
//        parity's, w as options.weighting says, decoded as the format's header says.
// Errors: kUnsupported for another format; kInvalidInput for an illegal shape, no rows, or an
//         importance of another size, negative or not finite; kNotRepresentable for a NaN or
//         infinity in the source, for a block that parity would decode to no finite number, and in
//         best for a value beyond the largest that the type can hold (a scale is never clamped in
//         silence), naming row and column; kExhausted.
// Cost: memory of the result and one row per thread. Threads: the pool given, cut by rows; bytes
// and report do not depend on its size.
// Source: ggml-quants.c (facts and formulas of parity).
Result<GgufEncoded> gguf_encode(const RowSource& source, Shape shape, FormatId target,
                                const GgufEncodeOptions& options, ThreadPool& pool,
                                std::string_view subject);

// Whether gguf_encode has an encoder for a format.
bool gguf_encode_supports(FormatId target);

// The rows of a matrix, whose memory must outlive the source.
RowSource matrix_rows(const MatrixView& matrix);

}  // namespace packstone
