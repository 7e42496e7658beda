// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/model/generate.h"

namespace packstone {

// The generator behind `seed`: SplitMix64 (Steele, Lea, Flood 2014), state = seed at the start.
// Each step adds 0x9E3779B97F4A7C15 to the state and mixes it; a uniform number in [0, 1) is the
// upper 53 bits of the output divided by 2^53.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

// check_sampler(options): kInvalidInput naming the option that is out of range: temperature finite
// and >= 0, top_p and min_p in [0, 1], top_k >= -1.
Status check_sampler(const SamplerOptions& options);

// Draws tokens one after the other.
class Sampler {
 public:
  // `options` must have passed check_sampler.
  Sampler(const SamplerOptions& options, std::int64_t vocab);

  // sample(logits) is the next token. Shapes: logits [vocab].
  //
  // Temperature 0: the largest logit, ties to the smallest id. Else weight = exp((logit - largest)
  // / temperature) in float64, so that a temperature near 0 tends to the largest logit and never
  // divides to infinity; then, each on what the one before left, ordered by weight and then id:
  // top_k keeps the k first; top_p the shortest run whose share is at least p, one at the least;
  // min_p those with at least min_p times the largest weight. One uniform number chooses.
  // A NaN is never chosen. Errors: kCorruptData when no logit is a number above -infinity.
  // Cost: O(vocab) and, with top_k or top_p, O(log vocab) per kept token; no allocation.
  Result<std::int32_t> sample(std::span<const float> logits);

 private:
  struct Candidate {
    double weight;
    std::int32_t id;
  };
  void fill(std::span<const float> logits, float largest);
  void keep_heaviest(std::int64_t count_max, double share);
  double total() const;

  SamplerOptions options_;
  SplitMix64 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace packstone
