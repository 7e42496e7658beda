// Four floats at a time, in an order of operations that no compiler or machine changes.
#pragma once

#include <cstdint>
#include <cstring>

namespace packstone::gguf {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

// The same number four times.
inline Float4 splat(float x) {
  return Float4{x, x, x, x};
}

// Four floats from an address of any alignment.
inline Float4 load4(const float* from) {
  Float4 lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// (a + b) + (c + d).
inline float sum4(Float4 x) {
  return (x[0] + x[1]) + (x[2] + x[3]);
}

// Lanes bounded to [low, high]; a NaN becomes low.
inline Float4 clamp4(Float4 x, float low, float high) {
  const Float4 lows = splat(low), highs = splat(high);
  x = x > lows ? x : lows;
  return x < highs ? x : highs;
}

// Ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bit below 1.
inline Float4 round4(Float4 x) {
  const Float4 magic = splat(12582912.0f);
  return (x + magic) - magic;
}

}  // namespace packstone::gguf
