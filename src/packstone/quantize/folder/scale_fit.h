// One group of values, padded as the searches of fit.h take it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "packstone/quantize/fit.h"

namespace packstone::folder {

class PaddedGroup {
 public:
  // view(x): x with weights of one, padded with zeros of no weight; lives until the next call.
  FitData view(std::span<const float> x) {
    const std::size_t padded = (x.size() + 7) / 8 * 8;
    values_.assign(padded, 0.0f);
    weights_.assign(padded, 0.0f);
    std::ranges::copy(x, values_.begin());
    std::fill_n(weights_.begin(), x.size(), 1.0f);
    const auto [low, high] = std::ranges::minmax(x);
    return {values_.data(), weights_.data(), static_cast<int>(padded), low, high};
  }
  // Room for groups of that many values, so that view allocates nothing.
  void reserve(std::size_t count) {
    values_.reserve(count + 8);
    weights_.reserve(count + 8);
  }

 private:
  std::vector<float> values_, weights_;
};

}  // namespace packstone::folder
