// The streams and digests that tests/vectors/make_weight_vectors.py defines.
#pragma once

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone::testing {

// The first bytes of the stream of a seed.
inline std::vector<std::byte> stream(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> result((bytes + 7) / 8 * 8);
  std::uint64_t state = seed;
  for (std::size_t at = 0; at < result.size(); at += 8) {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    store_le(result.data() + at, z ^ (z >> 31));
  }
  result.resize(bytes);
  return result;
}

// The bits of a value, those of one NaN for all.
inline std::uint32_t pattern_of(float value) {
  return std::isnan(value) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(value);
}

// The digest of pattern(0), ..., pattern(count - 1), as the vectors spell it.
template <class Pattern>
std::string digest_text(std::size_t count, Pattern&& pattern) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::uint64_t{pattern(i)} * (2 * i + 1);
  return fmt::format("{:016x}", sum);
}

// What ggml makes of the streams; null when the file cannot be read.
inline nlohmann::json digests() {
  std::ifstream file(PACKSTONE_SOURCE_DIR "/tests/vectors/weight/ggml_digests.json");
  return nlohmann::json::parse(file, nullptr, false);
}

}  // namespace packstone::testing
