// Values of every kind for the tests of the GGUF encoders.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "packstone/quantize/gguf/gguf_encode.h"

namespace packstone::gguf {

// The formats that gguf_encode supports.
inline std::vector<FormatId> encodable_formats() {
  std::vector<FormatId> formats;
  for (std::uint16_t index = 0; index < format_count(); ++index)
    if (gguf_encode_supports(FormatId{index})) formats.push_back(FormatId{index});
  return formats;
}

// gguf_encode of a row-major matrix, one thread.
inline Result<GgufEncoded> encode(const std::vector<float>& values, Shape shape, FormatId id,
                                  const GgufEncodeOptions& options) {
  ThreadPool pool(1);
  return gguf_encode(matrix_rows({values.data(), shape.rows, shape.cols, shape.cols}), shape, id,
                     options, pool, "weight");
}

// Normal values, sigma 0.02.
inline std::vector<float> gaussian(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = 0.02f * normal(random);
  return values;
}

// Student's t of 3 degrees times 0.02.
inline std::vector<float> heavy_tailed(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::student_t_distribution<float> student(3);
  std::vector<float> values(count);
  for (float& value : values) value = 0.02f * student(random);
  return values;
}

// exp(1.5 n), n standard normal.
inline std::vector<float> lognormal(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = std::exp(1.5f * normal(random));
  return values;
}

}  // namespace packstone::gguf
