#include "packstone/model/sampler.h"

#include <algorithm>
#include <cmath>

namespace packstone {
namespace {

// The largest logit's index, ties to the smallest; -1 when there is none above -infinity.
std::int64_t argmax(std::span<const float> logits) {
  std::int64_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > largest)) continue;
    largest = logits[i];
    best = static_cast<std::int64_t>(i);
  }
  return best;
}

Status out_of_range(std::string_view option, double value, std::string_view need) {
  return fail(ErrorCode::kInvalidInput, "model.generate", option, fmt::to_string(value), need);
}

}  // namespace

std::uint64_t SplitMix64::next() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

Status check_sampler(const SamplerOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    return out_of_range("temperature", options.temperature, "a finite number, 0 or more");
  if (!(options.top_p >= 0 && options.top_p <= 1))
    return out_of_range("top_p", options.top_p, "0 to 1");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return out_of_range("min_p", options.min_p, "0 to 1");
  if (options.top_k < -1) return out_of_range("top_k", options.top_k, "-1 or more");
  return {};
}

Sampler::Sampler(const SamplerOptions& options, std::int64_t vocab)
    : options_(options), random_(options.seed) {
  if (options.temperature > 0) candidates_.reserve(static_cast<std::size_t>(vocab));
}

void Sampler::fill(std::span<const float> logits, float largest) {
  candidates_.clear();
  const double temperature = options_.temperature;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    const bool is_largest = logits[i] == largest;  // also where both are infinite
    const double distance = static_cast<double>(logits[i]) - largest;
    const double weight = is_largest ? 1.0 : std::exp(distance / temperature);
    candidates_.push_back({weight, static_cast<std::int32_t>(i)});
  }
}

double Sampler::total() const {
  double sum = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.weight;
  return sum;
}

// Keeps the heaviest candidates, in order: at most `count_max`, and no more than are needed to
// reach `share` of the sum of all; at least one.
void Sampler::keep_heaviest(std::int64_t count_max, double share) {
  const auto lighter = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.id > b.id;
  };
  const double goal = share * total();
  std::make_heap(candidates_.begin(), candidates_.end(), lighter);
  auto end = candidates_.end();
  double sum = 0;
  std::int64_t count = 0;
  do {
    std::pop_heap(candidates_.begin(), end, lighter);
    --end;
    sum += end->weight;
    ++count;
  } while (end != candidates_.begin() && count < count_max && (share >= 1 || sum < goal));
  candidates_.erase(candidates_.begin(), end);
  std::reverse(candidates_.begin(), candidates_.end());
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  const std::int64_t best = argmax(logits);
  if (best < 0)
    return fail(ErrorCode::kCorruptData, "model.sample", "logits", "no number above -infinity",
                "at least one", "the weights hold NaN or infinity");
  if (options_.temperature == 0) return static_cast<std::int32_t>(best);
  fill(logits, logits[static_cast<std::size_t>(best)]);
  const std::int64_t all = static_cast<std::int64_t>(candidates_.size());
  if (options_.top_k > 0 && options_.top_k < all) keep_heaviest(options_.top_k, 1.0);
  if (options_.top_p < 1) keep_heaviest(all, options_.top_p);
  if (options_.min_p > 0)
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
  double rest = random_.uniform() * total();
  std::int32_t chosen = static_cast<std::int32_t>(best);
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight <= 0) continue;
    chosen = candidate.id;
    rest -= candidate.weight;
    if (rest < 0) break;
  }
  return chosen;
}

}  // namespace packstone
