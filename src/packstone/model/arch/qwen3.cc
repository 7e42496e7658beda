// Qwen3: Llama's layer with an RMS norm on every head of q and k before rope; no bias.
// Source of the formula: mlx_lm 0.32 models/qwen3.py.
#include "packstone/model/registry.h"

namespace packstone {

DecoderRecipe qwen3_recipe(const ModelConfig&) {
  DecoderRecipe recipe;
  recipe.qk_norm = true;
  return recipe;
}

}  // namespace packstone
