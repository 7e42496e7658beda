// Proves that every packed format decodes to the bits that its producer decodes it to, and that the
// formats of 32-blocks do so for every scale and every code.
#include <cmath>

#include "packstone/transcode/unpack.h"
#include "tests/support/vectors.h"

namespace packstone {
namespace {

// The payload and sign of a NaN are not specified by IEEE 754 arithmetic; all else must be equal.
bool same_number(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(Oracle, EveryDecodedValueEqualsTheProducers) {
  for (std::uint16_t index = 0; index < kFormatCount; ++index) {
    const FormatInfo& info = format_info(FormatId{index});
    if (info.scheme == SchemeKind::kFloat) continue;
    for (const vectors::Case& vector : vectors::load("format", info.name)) {
      const PackedWeight weight = vector.weight();
      const auto cols = static_cast<std::size_t>(vector.shape.cols);
      std::vector<float> row(cols);
      int non_finite = 0;
      for (std::int64_t r = 0; r < vector.shape.rows; ++r) {
        decode_row(weight, r, row);
        for (std::size_t c = 0; c < cols; ++c) {
          const float want = vector.values[static_cast<std::size_t>(r) * cols + c];
          non_finite += !std::isfinite(want);
          ASSERT_TRUE(same_number(row[c], want)) << info.name << " row " << r << " column " << c
                                                 << ": got " << row[c] << ", need " << want;
        }
      }
      const bool always_finite = info.name == GgufNvfp4::kName;  // its scale has no other bytes
      EXPECT_EQ(non_finite == 0, always_finite) << info.name;
    }
  }
}

// The value of a finite binary16 pattern by its definition.
double half_value(std::uint32_t half) {
  const double sign = half & 0x8000u ? -1 : 1;
  const int exponent = static_cast<int>(half >> 10 & 31u);
  const double mantissa = half & 1023u;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

// One row of a block per code of the first weight; every code occurs.
template <class F>
void every_scale_and_code(std::uint32_t offset_pattern) {
  constexpr std::int64_t kRows = (1 << F::kCodeBits) / 32 > 0 ? (1 << F::kCodeBits) / 32 : 1;
  std::vector<std::byte> plane(F::plane_bytes(0, {kRows, 32}, {}));
  const PackedWeight weight =
      PackedWeight::bind(kFormatId<F>, {kRows, 32}, {}, {plane}, nullptr, "t").value();
  auto* bytes = reinterpret_cast<unsigned char*>(plane.data());
  std::vector<std::uint32_t> codes(32);
  std::vector<float> out(32);
  for (std::uint32_t half = 0; half < 65536; ++half) {
    if ((half >> 10 & 31u) == 31) continue;
    RawParams raw;
    raw.pattern[0] = half;
    raw.pattern[1] = offset_pattern;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::uint32_t i = 0; i < 32; ++i)
        codes[i] = (static_cast<std::uint32_t>(row) * 32 + i) & ((1u << F::kCodeBits) - 1);
      pack_row(kFormatId<F>, {kRows, 32}, {}, &bytes, row, codes, {&raw, 1});
      decode_row(weight, row, out);
      for (std::size_t i = 0; i < 32; ++i) {
        const double level = static_cast<double>(codes[i]) - F::values(raw, {}).center;
        // The product of a half and a code is exact in double, and so is its conversion to float.
        const double product = half_value(half) * level;
        const float want = has_offset<F>() ? static_cast<float>(product) +
                                                 static_cast<float>(half_value(offset_pattern))
                                           : static_cast<float>(product);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(want), std::bit_cast<std::uint32_t>(out[i]))
            << F::kName << " scale " << half << " code " << codes[i];
      }
    }
  }
}

TEST(Oracle, EveryScaleWithEveryCode) {
  every_scale_and_code<GgufQ4_0>(0);
  every_scale_and_code<GgufQ5_0>(0);
  every_scale_and_code<GgufQ8_0>(0);
  for (std::uint32_t offset : {0x0000u, 0x8000u, 0xB555u, 0x7BFFu}) {
    every_scale_and_code<GgufQ4_1>(offset);
    every_scale_and_code<GgufQ5_1>(offset);
  }
}

}  // namespace
}  // namespace packstone
