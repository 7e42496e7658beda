#include "packstone/model/evaluate.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "packstone/kernel/ops.h"

namespace packstone {
namespace {

// EvalOptions with its defaults filled in.
struct Plan {
  std::int64_t context, stride, from, windows, logits_rows;
  std::int64_t scored_per_window() const { return context - 1 - from; }
};

std::unexpected<Error> invalid(std::string_view subject, std::int64_t got, std::string_view need) {
  return fail(ErrorCode::kInvalidInput, "model.evaluate", subject, fmt::to_string(got), need);
}

Result<Plan> make_plan(const ModelConfig& config, std::span<const std::int32_t> tokens,
                       const EvalOptions& options) {
  Plan plan{options.context, options.stride == 0 ? options.context : options.stride,
            options.from == -1 ? options.context / 2 : options.from, 0, options.logits_rows};
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (plan.context < 2 || plan.context > config.context)
    return invalid("context", plan.context,
                   fmt::format("2 to {}, the model's context", config.context));
  if (plan.stride < 1) return invalid("stride", plan.stride, "1 or more");
  if (plan.from < 0 || plan.from > plan.context - 2)
    return invalid("from", plan.from, fmt::format("0 to {}", plan.context - 2));
  if (options.logits_rows < 1) return invalid("logits_rows", options.logits_rows, "1 or more");
  if (options.windows_max < 0) return invalid("windows_max", options.windows_max, "0 or more");
  if (options.bos && (*options.bos < 0 || *options.bos >= config.vocab))
    return invalid("bos", *options.bos, fmt::format("0 to {}", config.vocab - 1));
  if (count < plan.context)
    return invalid("text", count, fmt::format("at least {} tokens, one window", plan.context));
  plan.logits_rows = std::min(plan.logits_rows, plan.scored_per_window());
  plan.windows = (count - plan.context) / plan.stride + 1;
  if (options.windows_max > 0) plan.windows = std::min(plan.windows, options.windows_max);
  return plan;
}

bool cancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

Status stopped() {
  return fail(ErrorCode::kCancelled, "model.evaluate", "run", "a request to stop", "");
}

// Sums of the negative log-likelihoods in the order of the text.
struct Score {
  double sum = 0, squares = 0;
  std::int64_t count = 0;

  void add(double nll) {
    sum += nll;
    squares += nll * nll;
    ++count;
  }
  PerplexityResult result(std::int64_t windows) const {
    const double n = static_cast<double>(count), mean = sum / n;
    const double variance = count > 1 ? std::max(0.0, (squares - n * mean * mean) / (n - 1)) : 0.0;
    return {std::exp(mean), mean, std::sqrt(variance / n), count, windows};
  }
};

// One model's way through a window, a few positions at a time.
class Walker {
 public:
  Walker(Model& model, std::int64_t rows_max) : model_(model), rows_max_(rows_max) {}

  Status start(std::int64_t context) {
    if (!cache_) {
      PACKSTONE_TRY(cache_, model_.new_cache(context));
      PACKSTONE_CHECK_OK(allocate());
    }
    cache_->truncate(0);
    return {};
  }

  Status allocate() {
    try {
      logits_.resize(static_cast<std::size_t>(rows_max_ * vocab()));
    } catch (const std::exception&) {
      return fail(ErrorCode::kExhausted, "model.evaluate", "logits_rows", fmt::to_string(rows_max_),
                  "memory for that many rows of logits");
    }
    return {};
  }

  // Runs the next tokens. The logits, when wanted, are those of every one of them.
  Status push(std::span<const std::int32_t> tokens, bool wants_logits) {
    rows_.clear();
    for (const std::int32_t token : tokens)
      rows_.push_back(
          {token, cache_->length() + static_cast<std::int64_t>(rows_.size()), 0, wants_logits});
    KvCache* caches[] = {cache_.get()};
    const auto size = wants_logits ? tokens.size() * static_cast<std::size_t>(vocab()) : 0;
    return model_.forward(rows_, caches, std::span(logits_).first(size));
  }

  std::int64_t vocab() const { return model_.config().vocab; }
  std::span<const float> row(std::int64_t index) const {
    return std::span(logits_).subspan(static_cast<std::size_t>(index * vocab()),
                                      static_cast<std::size_t>(vocab()));
  }
  ThreadPool& pool() const { return model_.pool(); }

 private:
  Model& model_;
  std::int64_t rows_max_;
  std::unique_ptr<KvCache> cache_;
  std::vector<float> logits_;
  std::vector<BatchRow> rows_;
};

double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
  const double all = ops().log_sum_exp(logits.data(), static_cast<std::int64_t>(logits.size()));
  return all - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

struct RowDivergence {
  double kld = 0, nll = 0, nll_against = 0;
  bool same_top = false;
};

RowDivergence compare(std::span<const float> q, std::span<const float> p, std::int32_t token) {
  const double log_q = ops().log_sum_exp(q.data(), static_cast<std::int64_t>(q.size()));
  const double log_p = ops().log_sum_exp(p.data(), static_cast<std::int64_t>(p.size()));
  double kld = 0;
  std::size_t top_q = 0, top_p = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double lp = static_cast<double>(p[i]) - log_p, lq = static_cast<double>(q[i]) - log_q;
    const double probability = std::exp(lp);
    if (probability > 0) kld += probability * (lp - lq);
    if (q[i] > q[top_q]) top_q = i;
    if (p[i] > p[top_p]) top_p = i;
  }
  const auto next = static_cast<std::size_t>(token);
  // The true value is never negative; rounding may make it -1e-17.
  return {std::max(kld, 0.0), log_q - q[next], log_p - p[next], top_q == top_p};
}

// An empty vector with room for a number per scored position.
Result<std::vector<double>> room_for_scores(const Plan& plan) {
  std::vector<double> scores;
  try {
    scores.reserve(static_cast<std::size_t>(plan.windows) *
                   static_cast<std::size_t>(plan.scored_per_window()));
  } catch (const std::exception&) {
    return fail(
        ErrorCode::kExhausted, "model.evaluate", "stride", fmt::to_string(plan.stride),
        fmt::format("memory for {} windows of {} scores", plan.windows, plan.scored_per_window()),
        "use a larger stride");
  }
  return scores;
}

DivergenceResult summarize(std::vector<double> klds, std::int64_t same_top,
                           const PerplexityResult& of_model, const PerplexityResult& of_against) {
  const double n = static_cast<double>(klds.size());
  DivergenceResult result;
  for (const double kld : klds) result.kld_mean += kld;
  result.kld_mean /= n;
  // NaN counts as larger than every number, so that no rank hides one.
  std::ranges::sort(klds,
                    [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; });
  const auto rank = static_cast<std::size_t>(std::ceil(0.99 * n));
  result.kld_p99 = klds[std::max<std::size_t>(rank, 1) - 1];
  result.kld_max = klds.back();
  result.top1_agreement = static_cast<double>(same_top) / n;
  result.perplexity = of_model;
  result.perplexity_against = of_against;
  return result;
}

// Walks over all windows. `score(window tokens, first position, count)` is called with the logits
// of positions [first, first + count) in the walkers.
template <class Score, class Done>
Status each_window(std::span<Walker> walkers, std::span<const std::int32_t> tokens,
                   const EvalOptions& options, const Plan& plan, const std::atomic<bool>* cancel,
                   Score score, Done done) {
  std::vector<std::int32_t> window(static_cast<std::size_t>(plan.context));
  for (std::int64_t index = 0; index < plan.windows; ++index) {
    const auto begin = tokens.begin() + index * plan.stride;
    std::copy(begin, begin + plan.context, window.begin());
    if (options.bos) window.front() = *options.bos;
    const std::span<const std::int32_t> all(window);
    for (Walker& walker : walkers) {
      PACKSTONE_CHECK_OK(walker.start(plan.context));
      if (cancelled(cancel)) return stopped();
      if (plan.from > 0)
        PACKSTONE_CHECK_OK(walker.push(all.first(static_cast<std::size_t>(plan.from)), false));
    }
    for (std::int64_t first = plan.from; first < plan.context - 1; first += plan.logits_rows) {
      if (cancelled(cancel)) return stopped();
      const std::int64_t count = std::min(plan.logits_rows, plan.context - 1 - first);
      for (Walker& walker : walkers)
        PACKSTONE_CHECK_OK(walker.push(
            all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), true));
      score(all, first, count);
    }
    done(index + 1);
  }
  return {};
}

}  // namespace

Result<PerplexityResult> perplexity(Model& model, std::span<const std::int32_t> tokens,
                                    const EvalOptions& options, const EvalProgress& progress,
                                    const std::atomic<bool>* cancel) {
  PACKSTONE_TRY(const Plan plan, make_plan(model.config(), tokens, options));
  Walker walker(model, plan.logits_rows);
  std::vector<double> nll(static_cast<std::size_t>(plan.logits_rows));
  Score total;
  const auto score = [&](std::span<const std::int32_t> window, std::int64_t first,
                         std::int64_t count) {
    auto task = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        nll[static_cast<std::size_t>(i)] =
            negative_log_likelihood(walker.row(i), window[static_cast<std::size_t>(first + i + 1)]);
    };
    walker.pool().parallel(count, 1, task);
    for (std::int64_t i = 0; i < count; ++i) total.add(nll[static_cast<std::size_t>(i)]);
  };
  const auto done = [&](std::int64_t windows) {
    if (progress) progress(windows, plan.windows, total.result(windows).ppl);
  };
  PACKSTONE_CHECK_OK(each_window({&walker, 1}, tokens, options, plan, cancel, score, done));
  return total.result(plan.windows);
}

Result<DivergenceResult> divergence(Model& model, Model& against,
                                    std::span<const std::int32_t> tokens,
                                    const EvalOptions& options, const EvalProgress& progress,
                                    const std::atomic<bool>* cancel) {
  PACKSTONE_TRY(const Plan plan, make_plan(model.config(), tokens, options));
  PACKSTONE_TRY(const Plan other, make_plan(against.config(), tokens, options));
  static_cast<void>(other);  // made for its checks
  if (model.config().vocab != against.config().vocab)
    return fail(ErrorCode::kInvalidInput, "model.evaluate", "vocabulary",
                fmt::to_string(model.config().vocab),
                fmt::format("{}, as the other model has", against.config().vocab));
  Walker walkers[] = {{model, plan.logits_rows}, {against, plan.logits_rows}};
  std::vector<RowDivergence> rows(static_cast<std::size_t>(plan.logits_rows));
  PACKSTONE_TRY(std::vector<double> all, room_for_scores(plan));
  Score of_model, of_against;
  std::int64_t same_top = 0;
  const auto score = [&](std::span<const std::int32_t> window, std::int64_t first,
                         std::int64_t count) {
    auto task = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        rows[static_cast<std::size_t>(i)] = compare(
            walkers[0].row(i), walkers[1].row(i), window[static_cast<std::size_t>(first + i + 1)]);
    };
    walkers[0].pool().parallel(count, 1, task);
    for (std::int64_t i = 0; i < count; ++i) {
      const RowDivergence& row = rows[static_cast<std::size_t>(i)];
      all.push_back(row.kld);
      of_model.add(row.nll);
      of_against.add(row.nll_against);
      same_top += row.same_top;
    }
  };
  const auto done = [&](std::int64_t windows) {
    if (progress) progress(windows, plan.windows, of_model.result(windows).ppl);
  };
  PACKSTONE_CHECK_OK(each_window(walkers, tokens, options, plan, cancel, score, done));
  return summarize(std::move(all), same_top, of_model.result(plan.windows),
                   of_against.result(plan.windows));
}

Status each_logits(Model& model, std::span<const std::int32_t> tokens, std::int64_t rows_at_once,
                   const std::function<Status(std::int64_t, std::span<const float>)>& sink,
                   const std::atomic<bool>* cancel) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (rows_at_once < 1) return invalid("rows_at_once", rows_at_once, "1 or more");
  if (count < 1 || count > model.config().context)
    return invalid("tokens", count,
                   fmt::format("1 to {}, the model's context", model.config().context));
  Walker walker(model, std::min(rows_at_once, count));
  PACKSTONE_CHECK_OK(walker.start(count));
  for (std::int64_t first = 0; first < count; first += rows_at_once) {
    if (cancelled(cancel)) return stopped();
    const std::int64_t rows = std::min(rows_at_once, count - first);
    PACKSTONE_CHECK_OK(walker.push(
        tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)), true));
    const std::span<const float> begin = walker.row(0);
    PACKSTONE_CHECK_OK(sink(first, {begin.data(), static_cast<std::size_t>(rows) * begin.size()}));
  }
  return {};
}

}  // namespace packstone
