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

// end_tokens(model_ends, tokenizer_ends, vocab) is the sorted union of the end tokens that the
// config files name (ModelConfig::eos) and those that the tokenizer's files name. Ids that the
// model cannot emit (outside [0, vocab)) are left out. Errors: none.
std::vector<std::int32_t> end_tokens(std::span<const std::int64_t> model_ends,
                                     std::span<const std::int32_t> tokenizer_ends,
                                     std::int64_t vocab);

// generate(model, prompt, options, on_token, cancel). Ids outside the tokenizer's `vocab_real` are
// never chosen (padded heads). Greedy ties go to the smallest id. Same seed, same tokens (sampler.h
// says how a token is drawn). Generation ends with any of options.end_tokens ("stop"), after
// tokens_max tokens or at the end of the model's context ("length"), or soon after *cancel becomes
// true ("cancelled", with the tokens so far). on_token and cancel may be empty.
// Errors: those of forward; kInvalidInput for an empty prompt, one longer than the context, or
// options out of range, by name; kCorruptData when a row of logits holds no number.
Result<GenerateResult> generate(Model& model, std::span<const std::int32_t> prompt,
                                std::int64_t vocab_real, const GenerateOptions& options,
                                const std::function<void(std::int32_t)>& on_token,
                                const std::atomic<bool>* cancel);

}  // namespace packstone
