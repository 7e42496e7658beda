// What tells one decoder architecture from another, as data. The decoder (decoder.h) knows the
// steps of a layer; a recipe says which of them an architecture takes and under which names its
// weights go.
#pragma once

#include <cstdint>
#include <string_view>

#include "packstone/checkpoint/model_config.h"

namespace packstone {

enum class Activation : std::uint8_t { kSilu, kGeluTanh };

// A layer is, with every norm an RMS norm and steps in brackets only where the recipe names them:
//   h = x + [post_attention_norm] o(attention(rope([q_norm] q(n)), rope([k_norm] k(n)), v(n))),
//       n = attention_norm(x)
//   y = h + [post_ffn_norm] down(activation(gate(m)) * up(m)),  m = ffn_norm(h)
struct DecoderRecipe {
  std::string_view attention_norm = "input_layernorm";
  std::string_view post_attention_norm;  // empty: none
  std::string_view ffn_norm = "post_attention_layernorm";
  std::string_view post_ffn_norm;  // empty: none
  bool qk_norm = false;            // per head, before rope
  bool norm_plus_one = false;      // the Hugging Face weight w stands for the factor 1 + w
  bool local_rope = false;         // sliding layers: rope_local_theta and no rope scaling
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;
  float attention_softcap = 0.0f;  // 0: none
  float final_softcap = 0.0f;      // 0: none
};

using RecipeFunction = DecoderRecipe (*)(const ModelConfig& config);

}  // namespace packstone
