// Values and rows of tensors whose stored form depends on the container.
#pragma once

#include <span>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"

namespace packstone::cli {

// The values of a small float tensor, row by row. Shapes: [rows * cols].
std::vector<float> decode_all(const PackedWeight& weight);

// The rows of the source's storage that make the target's storage, one after the other: the
// source's stored row of Hugging Face row target_order[i]. Empty means equal.
std::vector<std::int32_t> compose_rows(std::span<const std::int32_t> source_stored,
                                       std::span<const std::int32_t> target_order);

// in_order(values, order): value order[i] at i; all as they stand when `order` is empty.
// Shapes: equal sizes. Errors: none.
std::vector<float> in_order(std::vector<float> values, std::span<const std::int32_t> order);

}  // namespace packstone::cli
