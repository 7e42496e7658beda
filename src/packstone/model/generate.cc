#include "packstone/model/generate.h"

#include <algorithm>
#include <chrono>

#include "packstone/model/sampler.h"

namespace packstone {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status invalid(std::string_view subject, std::string_view got, std::string_view need) {
  return fail(ErrorCode::kInvalidInput, "model.generate", subject, got, need);
}

Status check(const ModelConfig& config, std::span<const std::int32_t> prompt,
             std::int64_t vocab_real, const GenerateOptions& options) {
  PACKSTONE_CHECK_OK(check_sampler(options.sampler));
  if (options.tokens_max < 0)
    return invalid("tokens_max", fmt::to_string(options.tokens_max), "0 or more");
  if (vocab_real < 1) return invalid("vocab_real", fmt::to_string(vocab_real), "1 or more");
  for (const std::int32_t token : options.end_tokens)
    if (token < 0 || token >= config.vocab)
      return invalid("end_tokens", fmt::to_string(token), fmt::format("0 to {}", config.vocab - 1));
  if (prompt.empty()) return invalid("prompt", "no token", "at least one");
  if (static_cast<std::int64_t>(prompt.size()) > config.context)
    return invalid("prompt", fmt::format("{} tokens", prompt.size()),
                   fmt::format("at most {}, the model's context", config.context));
  return {};
}

// One generation in progress.
struct Run {
  Model& model;
  std::unique_ptr<KvCache> cache;
  const std::atomic<bool>* cancel;
  std::vector<float> logits;
  std::vector<BatchRow> rows;

  bool cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }

  // Runs tokens that follow what the cache holds; the logits are those of the last one.
  Status push(std::span<const std::int32_t> tokens, bool wants_logits) {
    rows.clear();
    for (const std::int32_t token : tokens)
      rows.push_back({token, cache->length() + static_cast<std::int64_t>(rows.size()), 0, false});
    rows.back().wants_logits = wants_logits;
    KvCache* caches[] = {cache.get()};
    return model.forward(rows, caches, wants_logits ? std::span(logits) : std::span<float>());
  }

  // The prompt in pieces, so that it can be cancelled. Returns whether it was run to its end.
  Result<bool> prefill(std::span<const std::int32_t> prompt) {
    while (!prompt.empty()) {
      if (cancelled()) return false;
      const auto piece =
          prompt.first(std::min(prompt.size(), static_cast<std::size_t>(model.rows_max())));
      prompt = prompt.subspan(piece.size());
      PACKSTONE_CHECK_OK(push(piece, prompt.empty()));
    }
    return true;
  }
};

Status decode(Run& run, std::int64_t vocab, const GenerateOptions& options,
              const std::function<void(std::int32_t)>& on_token, GenerateResult& result) {
  Sampler sampler(options.sampler, vocab);
  while (static_cast<std::int64_t>(result.tokens.size()) < options.tokens_max) {
    if (run.cancelled()) {
      result.finish_reason = "cancelled";
      return {};
    }
    PACKSTONE_TRY(const std::int32_t token,
                  sampler.sample(std::span(run.logits).first(static_cast<std::size_t>(vocab))));
    result.tokens.push_back(token);
    if (on_token) on_token(token);
    if (std::ranges::find(options.end_tokens, token) != options.end_tokens.end()) {
      result.finish_reason = "stop";
      return {};
    }
    const bool full = run.cache->length() >= run.cache->context();
    if (full || static_cast<std::int64_t>(result.tokens.size()) == options.tokens_max) return {};
    PACKSTONE_CHECK_OK(run.push({&token, 1}, true));
  }
  return {};
}

}  // namespace

std::vector<std::int32_t> end_tokens(std::span<const std::int64_t> model_ends,
                                     std::span<const std::int32_t> tokenizer_ends,
                                     std::int64_t vocab) {
  std::vector<std::int32_t> all;
  for (const std::int64_t id : model_ends)
    if (id >= 0 && id < vocab) all.push_back(static_cast<std::int32_t>(id));
  for (const std::int32_t id : tokenizer_ends)
    if (id >= 0 && id < vocab) all.push_back(id);
  std::ranges::sort(all);
  const auto rest = std::ranges::unique(all);
  all.erase(rest.begin(), rest.end());
  return all;
}

Result<GenerateResult> generate(Model& model, std::span<const std::int32_t> prompt,
                                std::int64_t vocab_real, const GenerateOptions& options,
                                const std::function<void(std::int32_t)>& on_token,
                                const std::atomic<bool>* cancel) {
  const ModelConfig& config = model.config();
  PACKSTONE_CHECK_OK(check(config, prompt, vocab_real, options));
  const auto length = static_cast<std::int64_t>(prompt.size());
  // The last token is never run, so prompt + tokens_max - 1 positions are enough.
  const std::int64_t room = std::max<std::int64_t>(options.tokens_max - 1, 0);
  const std::int64_t context =
      room > config.context - length ? config.context : std::max<std::int64_t>(length + room, 1);
  PACKSTONE_TRY(auto cache, model.new_cache(context));
  Run run{model, std::move(cache), cancel, {}, {}};
  run.logits.resize(static_cast<std::size_t>(config.vocab));
  run.rows.reserve(static_cast<std::size_t>(std::min(length, model.rows_max())));
  GenerateResult result;
  result.finish_reason = "length";
  const auto start = Clock::now();
  PACKSTONE_TRY(const bool complete, run.prefill(prompt));
  result.prefill_seconds = seconds_since(start);
  if (!complete) {
    result.finish_reason = "cancelled";
    return result;
  }
  const auto decode_start = Clock::now();
  PACKSTONE_CHECK_OK(decode(run, std::min(vocab_real, config.vocab), options, on_token, result));
  result.decode_seconds = seconds_since(decode_start);
  return result;
}

}  // namespace packstone
