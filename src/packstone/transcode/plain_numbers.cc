#include "packstone/transcode/plain_numbers.h"

#include <bit>

#include "packstone/format/scheme.h"

// A copy for machines with vectors of 32 bytes, chosen when the program is loaded; sanitizers do
// not run that early.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#  define PACKSTONE_WIDE [[gnu::target_clones("avx2", "default")]]
#else
#  define PACKSTONE_WIDE
#endif

namespace packstone {
namespace {

// half_to_float without a branch: subnormal numbers are a difference of normal ones.
inline float half_number(std::uint32_t pattern) {
  const std::uint32_t magnitude = (pattern & 0x7FFFu) << 13;
  const std::uint32_t exponent = magnitude & 0x0F800000u;
  const std::uint32_t normal = magnitude + (112u << 23);
  const auto small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
  const std::uint32_t finite = exponent == 0 ? small : normal;
  const std::uint32_t bits = exponent == 0x0F800000u ? normal + (112u << 23) : finite;
  return std::bit_cast<float>(bits | (pattern & 0x8000u) << 16);
}

}  // namespace

PACKSTONE_WIDE void decode_numbers(ParamCoding coding, const std::uint32_t* patterns,
                                   std::size_t count, float* numbers) {
  if (coding == ParamCoding::kF16)
    for (std::size_t i = 0; i < count; ++i) numbers[i] = half_number(patterns[i]);
  else if (coding == ParamCoding::kF32)
    for (std::size_t i = 0; i < count; ++i) numbers[i] = std::bit_cast<float>(patterns[i]);
  else
    for (std::size_t i = 0; i < count; ++i) numbers[i] = std::bit_cast<float>(patterns[i] << 16);
}

// Nothing is rounded where the scale is normal, ends in as many zeros as codes and zero points have
// bits together, and is far from the largest number. No offset is -0.
PACKSTONE_WIDE bool make_offsets(const OffsetPass& pass) {
  const std::uint32_t end_bits = (1u << pass.level_bits) - 1;
  const std::uint32_t exponents = 254u - static_cast<std::uint32_t>(pass.level_bits);
  const std::uint32_t code_max = pass.code_max;
  const float* __restrict scales = pass.scales;
  const std::uint32_t* __restrict zeros = pass.zeros;
  float* __restrict offsets = pass.offsets;
  std::uint32_t* __restrict bad = pass.bad;
  std::int32_t* __restrict sign_codes = pass.sign_codes;
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < pass.count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(scales[i]);
    const auto zero = static_cast<std::int32_t>(zeros[i]);
    const std::uint32_t some = zero != 0 ? ~0u : 0;
    const std::uint32_t end = (bits & end_bits) != 0 ? 1 : 0;
    const std::uint32_t far = (bits >> 23 & 255u) - 1u >= exponents ? 1 : 0;
    bad[i] = (end | far) & some;
    any |= bad[i];
    const auto product = std::bit_cast<std::uint32_t>(scales[i] * -static_cast<float>(zero));
    offsets[i] = std::bit_cast<float>((product & some) | (0x80000000u & ~some));
    const std::uint32_t negative = bits >> 31 != 0 ? some : 0;
    const std::uint32_t code = zeros[i] <= code_max ? zeros[i] : ~0u;
    sign_codes[i] = static_cast<std::int32_t>((code & negative) | ~negative);
  }
  return any != 0;
}

PACKSTONE_WIDE bool encode_normal(ParamCoding coding, const float* numbers, std::size_t count,
                                  std::uint32_t* patterns, std::uint32_t* bad) {
  const bool half = coding == ParamCoding::kF16;
  if (coding == ParamCoding::kF32) {
    for (std::size_t i = 0; i < count; ++i) patterns[i] = std::bit_cast<std::uint32_t>(numbers[i]);
    return false;
  }
  const std::uint32_t end_bits = half ? 0x1FFFu : 0xFFFFu;
  const std::uint32_t least = half ? 113u : 1u, exponents = half ? 30u : 254u;
  const std::uint32_t rebias = half ? 112u << 23 : 0;
  const int shift = half ? 13 : 16;
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(numbers[i]);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    const std::uint32_t other = static_cast<std::uint32_t>((bits & end_bits) != 0) |
                                static_cast<std::uint32_t>((magnitude >> 23) - least >= exponents);
    bad[i] = magnitude != 0 ? other : 0;
    patterns[i] = (magnitude != 0 ? (magnitude - rebias) >> shift : 0) | (bits >> 16 & 0x8000u);
    any |= bad[i];
  }
  return any != 0;
}

PACKSTONE_WIDE bool any_set(const std::uint32_t* patterns, std::size_t count, std::uint32_t bits) {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < count; ++i)
    any |= static_cast<std::uint32_t>((patterns[i] & bits) == bits);
  return any != 0;
}

}  // namespace packstone
