// Float tensors whose stored form depends on the container: Gemma's norms, which GGUF keeps as
// 1 + w, and vectors, which GGUF wants in float32.
#pragma once

#include <span>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"

namespace packstone::cli {

struct VectorChange {
  ValueRule from = ValueRule::kSame;
  ValueRule to = ValueRule::kSame;
};

// apply_rule(values, change) changes stored values from one container's rule to the other's in
// place. The number that the model multiplies by, fl(1 + w), stays the same; returns the index of
// the first value for which that is impossible, or -1.
// Exact: same_value on the multiplier. Source: Gemma's norms, transformers 5.24 modeling_gemma3.py.
std::int64_t apply_rule(std::span<float> values, const VectorChange& change);

// The values of a small float tensor, row by row. Shapes: [rows * cols].
std::vector<float> decode_all(const PackedWeight& weight);

// The rows of the source's storage that make the target's storage, one after the other: the
// source's stored row of Hugging Face row target_order[i]. Empty means equal.
std::vector<std::int32_t> compose_rows(std::span<const std::int32_t> source_stored,
                                       std::span<const std::int32_t> target_order);

}  // namespace packstone::cli
