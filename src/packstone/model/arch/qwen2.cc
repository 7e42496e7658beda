// Qwen2 and Qwen2.5: Llama's layer with a bias on q, k and v (config.qkv_bias).
// Source of the formula: mlx_lm 0.32 models/qwen2.py.
#include "packstone/model/registry.h"

namespace packstone {

DecoderRecipe qwen2_recipe(const ModelConfig&) {
  return {};
}

}  // namespace packstone
