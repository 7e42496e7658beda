// Gemma 3 text: Gemma 2's four norms without its caps, RMS norms with factor 1 + w on the heads of
// q and k, sliding layers with a rope base of their own. The embedding factor sqrt(hidden) is
// rounded to bfloat16, as the model was trained. Source of the formula: mlx_lm 0.32
// models/gemma3_text.py.
#include <cmath>

#include "packstone/base/small_float.h"
#include "packstone/model/registry.h"

namespace packstone {

DecoderRecipe gemma3_recipe(const ModelConfig& config) {
  DecoderRecipe recipe;
  recipe.post_attention_norm = "post_attention_layernorm";
  recipe.ffn_norm = "pre_feedforward_layernorm";
  recipe.post_ffn_norm = "post_feedforward_layernorm";
  recipe.qk_norm = true;
  recipe.norm_plus_one = true;
  recipe.local_rope = true;
  recipe.activation = Activation::kGeluTanh;
  const float root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
  recipe.embedding_scale = bfloat16_to_float(float_to_bfloat16(root));
  recipe.attention_softcap = static_cast<float>(config.attention_softcap.value_or(0.0));
  recipe.final_softcap = static_cast<float>(config.final_softcap.value_or(0.0));
  return recipe;
}

}  // namespace packstone
