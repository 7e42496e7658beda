// The passes over many patterns of plain_move.h. All are exact, element by element, and the same on
// every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "packstone/format/layout.h"

namespace packstone {

// Codings here: kF16, kF32, and kMetadata for bfloat16.

// decode_numbers(coding, patterns, count, numbers): the numbers of patterns, NaN payloads kept.
void decode_numbers(ParamCoding coding, const std::uint32_t* patterns, std::size_t count,
                    float* numbers);

// Of zero point `zero` and scale `scale`: the offset -zero * scale, or none where zero is 0.
struct OffsetPass {
  const float* scales;
  const std::uint32_t* zeros;
  std::size_t count;
  int level_bits;  // of codes and zero points together
  std::uint32_t code_max;
  float* offsets;
  std::uint32_t* bad;        // 1 where something could be rounded, else 0
  std::int32_t* sign_codes;  // the code of a zero that changes its sign, else -1
};
// make_offsets(pass) fills offsets, bad and sign_codes; true where any is bad.
bool make_offsets(const OffsetPass& pass);

// encode_normal(coding, numbers, count, patterns, bad) stores normal numbers and zeros; true where
// any other or one without a pattern is there, marked bad (1, else 0).
bool encode_normal(ParamCoding coding, const float* numbers, std::size_t count,
                   std::uint32_t* patterns, std::uint32_t* bad);

// any_set(patterns, count, bits): whether some pattern has all of these bits.
bool any_set(const std::uint32_t* patterns, std::size_t count, std::uint32_t bits);

}  // namespace packstone
