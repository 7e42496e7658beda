// A checkpoint's tensors bound to the places of a decoder: matrices ready to run, vectors as
// float32.
#pragma once

#include <optional>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/kernel/matmul/linear.h"
#include "packstone/model/recipe.h"

namespace packstone {

// A matrix and its bias (empty: none).
struct BoundLinear {
  std::optional<Linear> matrix;  // always set once bound
  std::vector<float> bias;

  const Linear& operator*() const { return *matrix; }
};

struct LayerWeights {
  BoundLinear q, k, v, o, gate, up, down;
  std::vector<float> attention_norm, post_attention_norm, ffn_norm, post_ffn_norm, q_norm, k_norm;
};

struct DecoderWeights {
  std::optional<Linear> embedding;  // rows are looked up in it; with tied embeddings also the head
  std::optional<Linear> separate_head;
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;

  const Linear& head() const { return separate_head ? *separate_head : *embedding; }
  // Calls visit(linear) for every matrix once.
  template <class Visit>
  void each_linear(Visit visit) const {
    visit(*embedding);
    if (separate_head) visit(*separate_head);
    for (const LayerWeights& layer : layers)
      for (const BoundLinear* bound :
           {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
        visit(**bound);
  }
};

// bind_weights(checkpoint, recipe): every tensor that the recipe names, by its Hugging Face name
// and with the config's shape. Exact: matrices bitwise (nothing is copied); vectors decoded to
// float32, then for norms that mean
//        1 + w one float32 addition, unless the file stores the sum.
// Errors: kCorruptData for a missing or misshaped tensor, by name; those of Linear::prepare.
Result<DecoderWeights> bind_weights(const Checkpoint& checkpoint, const DecoderRecipe& recipe);

}  // namespace packstone
