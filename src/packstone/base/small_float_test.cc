// Proves the 16-bit conversions on every pattern, against the compiler's _Float16 and by search.
#include "packstone/base/small_float.h"

#include <cmath>
#include <limits>

namespace packstone {
namespace {

TEST(SmallFloat, HalfRoundTripsEveryPattern) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const float value = half_to_float(static_cast<std::uint16_t>(pattern));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_half(value), pattern);
    ASSERT_EQ(static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(pattern))),
              value);
  }
}

TEST(SmallFloat, HalfRoundsToNearestEvenBetweenNeighbours) {
  for (std::uint32_t pattern = 0; pattern < 0x7BFF; ++pattern) {
    const float low = half_to_float(static_cast<std::uint16_t>(pattern));
    const float high = half_to_float(static_cast<std::uint16_t>(pattern + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(float_to_half(middle), pattern + (pattern & 1)) << pattern;
    ASSERT_EQ(float_to_half(std::nextafter(middle, low)), pattern);
    ASSERT_EQ(float_to_half(std::nextafter(middle, high)), pattern + 1);
    ASSERT_EQ(float_to_half(-middle), (pattern + (pattern & 1)) | 0x8000u);
  }
}

TEST(SmallFloat, HalfOverflowStartsAt65520) {
  EXPECT_EQ(float_to_half(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

TEST(SmallFloat, BFloat16RoundsToNearestEven) {
  for (std::uint32_t pattern = 0; pattern < 0x7F80; ++pattern) {
    const std::uint32_t bits = pattern << 16;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits)), pattern);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits | 0x8000u)), pattern + (pattern & 1));
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits | 0x8001u)), pattern + 1);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(bits | 0x7FFFu)), pattern);
  }
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace packstone
