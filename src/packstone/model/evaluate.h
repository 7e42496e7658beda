// How good a model is on a text: perplexity, and the divergence of one model from another.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "packstone/model/model.h"

namespace packstone {

// The tokens are cut into windows of `context` tokens that start at 0, stride, 2 stride, ...; a
// last window that is not full is left out. In each window the logits at positions [from, context -
// 2] are scored against the token that follows.
struct EvalOptions {
  std::int64_t context = 512;
  std::int64_t stride = 0;          // 0: equal to context
  std::int64_t from = -1;           // -1: context / 2, as llama.cpp's perplexity does
  std::optional<std::int32_t> bos;  // put in place of the first token of every window
  std::int64_t windows_max = 0;     // 0: all
  std::int64_t logits_rows = 32;    // rows of logits held at a time
};

struct PerplexityResult {
  double ppl = 0;        // exp(nll_mean)
  double nll_mean = 0;   // nats per scored token
  double nll_error = 0;  // standard error of nll_mean
  std::int64_t scored = 0;
  std::int64_t windows = 0;
};

// All of D = sum_i p(i) (log p(i) - log q(i)) in nats per scored position, where p is the
// distribution of `against` (the original) and q that of `model`.
struct DivergenceResult {
  double kld_mean = 0;
  // The smallest value that at least 99 % of the positions do not exceed; NaN exceeds all numbers.
  double kld_p99 = 0;
  double kld_max = 0;
  double top1_agreement =
      0;  // share of positions where both have the same largest logit, in [0, 1]
  PerplexityResult perplexity;          // of `model`
  PerplexityResult perplexity_against;  // of `against`
};

// Called after every window with the windows done, the windows in all and the perplexity so far.
using EvalProgress = std::function<void(std::int64_t done, std::int64_t total, double ppl)>;

// perplexity(model, tokens, options, progress, cancel) scores a text that was tokenized once.
// Exact: measured; every log-sum-exp and sum in float64 in one fixed order: same model, same
// tokens, same bits for any thread count.
// Errors: kInvalidInput naming the option, or for fewer tokens than one window; kCancelled; those
// of forward. Cost: logits of `logits_rows` positions. Threads: those of the model's pool.
Result<PerplexityResult> perplexity(Model& model, std::span<const std::int32_t> tokens,
                                    const EvalOptions& options = {},
                                    const EvalProgress& progress = {},
                                    const std::atomic<bool>* cancel = nullptr);

// divergence(model, against, tokens, options, progress, cancel): both models on the same tokens,
// side by side. Exact, cost, threads: as perplexity, for two models, and a number per scored
// position. Errors: as perplexity; kInvalidInput when the numbers of logits differ; kExhausted.
Result<DivergenceResult> divergence(Model& model, Model& against,
                                    std::span<const std::int32_t> tokens,
                                    const EvalOptions& options = {},
                                    const EvalProgress& progress = {},
                                    const std::atomic<bool>* cancel = nullptr);

// each_logits(model, tokens, rows_at_once, sink, cancel) runs one sequence of tokens, as they are,
// and hands the logits of all positions to `sink` in order: sink(first position, logits [n,
// vocab]). Errors: those of forward and of sink; kInvalidInput for no tokens, more than the model's
// context,
//         or rows_at_once below 1; kCancelled. Cost: logits of rows_at_once positions.
Status each_logits(Model& model, std::span<const std::int32_t> tokens, std::int64_t rows_at_once,
                   const std::function<Status(std::int64_t, std::span<const float>)>& sink,
                   const std::atomic<bool>* cancel = nullptr);

}  // namespace packstone
