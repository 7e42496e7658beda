// Gemma 2: norms before and after both halves with factor 1 + w, tanh caps on attention scores and
// logits, tanh-GELU, embeddings times sqrt(hidden) in float32.
// Source of the formula: mlx_lm 0.32 models/gemma2.py (which leaves out the sliding window; here
// config.sliding_layers decides, as in transformers).
#include <cmath>

#include "packstone/model/registry.h"

namespace packstone {

DecoderRecipe gemma2_recipe(const ModelConfig& config) {
  DecoderRecipe recipe;
  recipe.post_attention_norm = "post_attention_layernorm";
  recipe.ffn_norm = "pre_feedforward_layernorm";
  recipe.post_ffn_norm = "post_feedforward_layernorm";
  recipe.norm_plus_one = true;
  recipe.activation = Activation::kGeluTanh;
  recipe.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
  recipe.attention_softcap = static_cast<float>(config.attention_softcap.value_or(0.0));
  recipe.final_softcap = static_cast<float>(config.final_softcap.value_or(0.0));
  return recipe;
}

}  // namespace packstone
