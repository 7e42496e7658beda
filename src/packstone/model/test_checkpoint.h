// Tiny checkpoints made in memory, for tests.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"

namespace packstone::testing {

// A small configuration of an architecture: 2 layers, 4 heads of 16, 64 wide, 96 tokens.
ModelConfig tiny_config(Architecture architecture);

// Adds a float32 tensor. Shapes: values [rows * cols] row by row; a vector has rows 1 and rank 1.
void add_tensor(Checkpoint& checkpoint, const std::string& name, std::int64_t rows,
                std::int64_t cols, std::vector<float> values, bool is_vector = false);

// All tensors that the config asks for, with random values from `seed`.
Checkpoint random_checkpoint(const ModelConfig& config, std::uint32_t seed);

// A model whose greedy answer to token t is next[t], whatever came before. `head_rows` >= the
// number of tokens: further rows of the head are zero. Every real logit is negative when
// `negative`.
Checkpoint forced_checkpoint(const std::vector<std::int32_t>& next, std::int64_t head_rows,
                             bool negative);

inline constexpr Architecture kAllArchitectures[] = {Architecture::kLlama,  Architecture::kMistral,
                                                     Architecture::kQwen2,  Architecture::kQwen3,
                                                     Architecture::kGemma2, Architecture::kGemma3};

}  // namespace packstone::testing
