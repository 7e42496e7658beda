#include "packstone/checkpoint/metadata.h"

#include <cmath>

#include "packstone/checkpoint/config.h"

namespace packstone {

double yarn_attention_factor(const RopeScaling& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto scale = [&](double weight) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1.0;
  };
  return scale(rope.mscale) / scale(rope.mscale_all_dim);
}

std::int64_t sliding_period(const std::vector<bool>& sliding_layers) {
  const std::size_t layers = sliding_layers.size();
  for (std::size_t period = 1; period <= layers + 1; ++period) {
    bool fits = true;
    for (std::size_t i = 0; i < layers && fits; ++i)
      fits = sliding_layers[i] == ((i + 1) % period != 0);
    if (fits) return static_cast<std::int64_t>(period);
  }
  return 0;
}

std::vector<float> gguf_rope_divisors(const Checkpoint& source) {
  if (!source.rope_divisors.empty()) return source.rope_divisors;
  if (source.config.rope.kind != RopeKind::kLlama3) return {};
  return llama3_factors(source.config.rope, source.config.rope_theta, source.config.head_dim);
}

}  // namespace packstone
