// Parameters that stand at equal distances in a plane, read and written together.
#pragma once

#include <cstdint>

namespace packstone {

// `count` patterns of `width` bits, the first at bit `bit` of the plane and `step` bits apart. With
// a word bias (layout.h, ParamSpec) the plane stores words less that.
struct PatternRun {
  std::int64_t bit = 0, step = 0, count = 0;
  int width = 0;
  std::uint32_t word_bias = 0;
};

// read_run(plane, run, patterns, distance): pattern i goes to patterns[i * distance].
// write_run: the same back; other bits of the plane keep what they mean.
// Exact. False, and nothing is done, where patterns would cross bytes. Errors: none.
bool read_run(const unsigned char* plane, const PatternRun& run, std::uint32_t* patterns,
              std::int64_t distance);
bool write_run(unsigned char* plane, const PatternRun& run, const std::uint32_t* patterns,
               std::int64_t distance);

}  // namespace packstone
