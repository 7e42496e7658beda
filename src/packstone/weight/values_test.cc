// Proves what the values of a weight are, at every type: contracts B12 to B22.
#include <cfenv>

#include "packstone/transcode/unpack.h"
#include "packstone/weight/test_stream.h"
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::bytes_of;
using testing::digest_text;
using testing::doubles;
using testing::pattern_of;
using testing::stream;
using testing::test_pool;

// Blocks of the stream with every binary16 scale.
struct ScaleStream {
  const char* name;
  Result<Weight> (*make)(ByteArray);
  std::size_t block, cols, scale_at;
};
constexpr std::size_t kScales = 65536;
const ScaleStream kStreams[] = {{"q8_0", Weight::q8_0, 34, 32, 0},
                                {"q4_K", Weight::q4_k, 144, 256, 0},
                                {"q6_K", Weight::q6_k, 210, 256, 208}};

Weight stream_weight(const ScaleStream& one) {
  std::vector<std::byte> bytes = stream(1, kScales * one.block);
  for (std::size_t i = 0; i < kScales; ++i)
    store_le(bytes.data() + i * one.block + one.scale_at, static_cast<std::uint16_t>(i));
  return one
      .make(bytes_of({static_cast<std::int64_t>(kScales), static_cast<std::int64_t>(one.block)},
                     std::move(bytes)))
      .value();
}

TEST(TypedWeight, B17_ZeroBytesDecodeToZeroAndToMinusZeroInQ6_K) {
  for (const ScaleStream& one : kStreams) {
    const Weight w = one.make(bytes_of({1, static_cast<std::int64_t>(one.block)},
                                       std::vector<std::byte>(one.block)))
                         .value();
    for (const double value : doubles(dequant(w, ValueType::kF32, test_pool()).value())) {
      EXPECT_EQ(value, 0);
      EXPECT_EQ(std::signbit(value), one.make == Weight::q6_k) << one.name;
    }
  }
}

TEST(TypedWeight, B18_EveryScaleDecodesToTheBitsOfGgml) {
  const nlohmann::json expected = testing::digests();
  ASSERT_TRUE(expected.is_object());
  for (const ScaleStream& one : kStreams) {
    const Array values = dequant(stream_weight(one), ValueType::kF32, test_pool()).value();
    const std::span<const float> all = values.as<float>();
    ASSERT_EQ(all.size(), kScales * one.cols);
    const std::size_t part = 4096 * one.cols;
    for (std::size_t i = 0; i < expected["decode"][one.name].size(); ++i) {
      EXPECT_EQ(digest_text(part, [&](std::size_t j) { return pattern_of(all[i * part + j]); }),
                expected["decode"][one.name][i])
          << one.name << i;
    }
  }
}

TEST(TypedWeight, B18_FusedAndUnfusedSubtractionAgreeInQ4_K) {
  // d * sc * q needs at most 11 + 6 + 4 bits, so a fused subtraction would round the same sum.
  const Weight w = stream_weight(kStreams[1]);
  const PackedWeight packed =
      PackedWeight::bind(w.format(), {static_cast<std::int64_t>(kScales), 256}, {},
                         {std::get<Q4_KParts>(w.parts()).blocks.bytes}, nullptr, "q4_k")
          .value();
  std::vector<std::uint32_t> codes(256);
  std::vector<GroupValues> groups(8);
  std::vector<float> row(256);
  std::int64_t compared = 0;
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(kScales); r += 7) {
    decode_row(packed, r, row);
    unpack_row(packed, r, codes, groups);
    for (std::size_t c = 0; c < 256; c += 5) {
      const GroupValues& group = groups[c / 32];
      const float fused = std::fma(group.scale, static_cast<float>(codes[c]), group.offset);
      ASSERT_EQ(pattern_of(fused), pattern_of(row[c])) << r << " " << c;
      ++compared;
    }
  }
  EXPECT_GT(compared, 400000);
}

TEST(TypedWeight, B19_InfiniteAndNanScalesGiveInfiniteAndNanValues) {
  for (const std::uint16_t scale : {0x7C00, 0xFC00, 0x7E00, 0xFE01}) {
    std::vector<std::byte> block(34);
    store_le(block.data(), scale);
    block[2] = std::byte{1};
    block[3] = std::byte{0xFF};
    const Weight w = Weight::q8_0(bytes_of({1, 34}, block)).value();
    for (const ValueType type :
         {ValueType::kF32, ValueType::kF64, ValueType::kBF16, ValueType::kF16}) {
      const std::vector<double> values = doubles(dequant(w, type, test_pool()).value());
      EXPECT_TRUE(std::isnan(values[2])) << "infinity times 0";
      if ((scale & 0x3FF) == 0) {
        EXPECT_EQ(values[0], scale & 0x8000 ? -INFINITY : INFINITY);
        EXPECT_EQ(values[1], scale & 0x8000 ? INFINITY : -INFINITY);
      } else {
        EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
      }
    }
  }
}

// The nearest value with `digits` bits, ties to even, by integer arithmetic on the float's own
// bits; exponents in the normal range of both types.
double rounded_once(float value, int digits) {
  int exponent = 0;
  const double mantissa = std::ldexp(std::frexp(static_cast<double>(value), &exponent), digits);
  return std::ldexp(std::nearbyint(mantissa), exponent - digits);
}

TEST(TypedWeight, B20_OtherTypesAreRoundedOnceFromFloat32) {
  ASSERT_EQ(std::fegetround(), FE_TONEAREST);
  // 1 + 2^-8 + 2^-12: to bfloat16 it lies just above a tie, and rounds up; through binary16 it
  // would lose the last bit, lie on the tie and round down to even.
  const float twice = 1 + 0x1p-8f + 0x1p-12f;
  ASSERT_NE(bfloat16_to_float(float_to_bfloat16(twice)),
            bfloat16_to_float(float_to_bfloat16(half_to_float(float_to_half(twice)))));
  std::mt19937_64 random(20);
  std::vector<float> values = {twice, -twice, 1 + 0x1p-8f, 1 + 0x3p-8f, 1.0f, 3.14159f};
  for (int i = 0; i < 2000; ++i)
    values.push_back(std::ldexp(static_cast<float>(random() % (1 << 24)), -24) + 0.25f);
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const auto owner = std::make_shared<std::vector<std::byte>>(bytes);
  const Weight w =
      Weight::from(PackedWeight::bind(kFloat32, {1, count}, {}, {*owner}, owner, "w").value())
          .value();
  const std::vector<double> f64 = doubles(dequant(w, ValueType::kF64, test_pool()).value());
  const std::vector<double> bf16 = doubles(dequant(w, ValueType::kBF16, test_pool()).value());
  const std::vector<double> f16 = doubles(dequant(w, ValueType::kF16, test_pool()).value());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(f64[i], values[i]);
    EXPECT_EQ(bf16[i], rounded_once(values[i], 8)) << values[i];
    EXPECT_EQ(f16[i], rounded_once(values[i], 11)) << values[i];
  }
}

TEST(TypedWeight, B20_EveryLayoutRoundsItsFloat32ValuesOnce) {
  std::mt19937_64 random(21);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random, true);
    const Array f32 = dequant(w, ValueType::kF32, test_pool()).value();
    for (const ValueType type : {ValueType::kF64, ValueType::kBF16, ValueType::kF16}) {
      const std::vector<float> values(f32.as<float>().begin(), f32.as<float>().end());
      EXPECT_TRUE(testing::same_values(testing::array_of(f32.dims, values, type),
                                       dequant(w, type, test_pool()).value()))
          << testing::text_of(one);
    }
  }
}

}  // namespace
}  // namespace packstone
