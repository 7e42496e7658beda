// Mixes of GGUF types under one name: gguf:Q4_K_M and its kin.
#pragma once

#include <span>
#include <string_view>

#include "packstone/cli/conversion.h"

namespace packstone::cli {

// Which layers a rule is for, of n counted from 0.
enum class RecipeLayers {
  kAll,
  kMoreBits,        // the first and the last eighth, and every third of those between
  kFirstTwo,
  kFirstFour,
  kFirstEighth,
  kFirstSixteenth,
  kSharedByFour,    // all, if at least four query heads share the values of one head
};

// One matrix of a layer by its Hugging Face name; the first rule that holds counts.
struct RecipeRule {
  std::string_view matrix;
  RecipeLayers layers;
  std::string_view type;
};

// What a name stands for: a type for all matrices, and rules for those that matter more. The head,
// which is the embedding where there is no other, is Q6_K.
struct GgufRecipe {
  std::string_view name;  // "gguf:Q4_K_M"
  std::string_view type;  // "gguf.q4_k"
  std::span<const RecipeRule> rules;
};

// The recipes, after llama-quantize of llama.cpp (build 11434; llama_tensor_get_type), for dense
// models. docs/RECIPES.md shows them.
std::span<const GgufRecipe> gguf_recipes();

// find_recipe("gguf:Q4_K_M"): the recipe, or null. Errors: none.
const GgufRecipe* find_recipe(std::string_view layout);

// apply_recipe(recipe, source, request): the recipe's overrides for the matrices of `source`, after
// those of the call. Columns that do not divide into blocks of 256 take a type with smaller blocks:
// Q2_K and Q3_K become IQ4_NL, Q4_K Q5_0, Q5_K Q5_1, Q6_K Q8_0; the report names them.
// Errors: none.
void apply_recipe(const GgufRecipe& recipe, const Checkpoint& source, QuantizeRequest& request);

}  // namespace packstone::cli
