// The one list of architectures. To add one: write arch/<name>.cc, declare its recipe here, add it
// to the list, and put a golden model under tests/golden.
#pragma once

#include <array>

#include "packstone/model/recipe.h"

namespace packstone {

// Llama and Mistral: arch/llama.cc. Errors: none.
DecoderRecipe llama_recipe(const ModelConfig& config);
// Qwen2 and Qwen2.5: arch/qwen2.cc. Errors: none.
DecoderRecipe qwen2_recipe(const ModelConfig& config);
// Qwen3, dense: arch/qwen3.cc. Errors: none.
DecoderRecipe qwen3_recipe(const ModelConfig& config);
// Gemma 2: arch/gemma2.cc. Errors: none.
DecoderRecipe gemma2_recipe(const ModelConfig& config);
// Gemma 3, text: arch/gemma3.cc. Errors: none.
DecoderRecipe gemma3_recipe(const ModelConfig& config);

struct ArchitectureEntry {
  Architecture architecture;
  RecipeFunction recipe;
};

inline constexpr std::array kArchitectures{
    ArchitectureEntry{Architecture::kLlama, llama_recipe},
    ArchitectureEntry{Architecture::kMistral, llama_recipe},
    ArchitectureEntry{Architecture::kQwen2, qwen2_recipe},
    ArchitectureEntry{Architecture::kQwen3, qwen3_recipe},
    ArchitectureEntry{Architecture::kGemma2, gemma2_recipe},
    ArchitectureEntry{Architecture::kGemma3, gemma3_recipe},
};

}  // namespace packstone
