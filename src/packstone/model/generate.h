// The generation loop: prompt in, tokens out, one callback per token.
#pragma once

#include <atomic>
#include <functional>

#include "packstone/model/model.h"

namespace packstone {

struct SamplerOptions {
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::int32_t top_k = 0;  // 0 and -1: off
  std::uint64_t seed = 0;
};

struct GenerateOptions {
  std::int64_t tokens_max = 128;
  std::vector<std::int32_t> end_tokens;
  SamplerOptions sampler;
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the end token included
  std::string finish_reason;         // "stop" or "length" or "cancelled"
  double prefill_seconds = 0, decode_seconds = 0;
};

// generate(model, prompt, options, on_token, cancel). Ids outside the tokenizer's `vocab_real` are
// never chosen (padded heads). Greedy ties go to the smallest id. Same seed, same tokens.
// Errors: those of forward; kInvalidInput for an empty prompt or options out of range, by name.
Result<GenerateResult> generate(Model& model, std::span<const std::int32_t> prompt,
                                std::int64_t vocab_real, const GenerateOptions& options,
                                const std::function<void(std::int32_t)>& on_token,
                                const std::atomic<bool>* cancel);

}  // namespace packstone
