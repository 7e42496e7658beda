// Proves that quantize_q8_0 makes the bytes that ggml makes, and what it does where ggml's result
// is not defined: contracts B23 to B28.
#if defined(__x86_64__)
#  include <xmmintrin.h>
#endif

#include "packstone/weight/test_stream.h"
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::array_of;
using testing::doubles;
using testing::test_pool;

#if defined(__FAST_MATH__)
#  error "the bits of this room need IEEE arithmetic"
#endif

constexpr std::size_t kBlocks = 16384;

// The floats of tests/vectors/make_weight_vectors.py, quantize.
std::vector<float> stream_floats() {
  const std::vector<std::byte> words = testing::stream(3, kBlocks * 128);
  std::vector<float> values;
  for (std::size_t i = 0; i < kBlocks * 32; ++i) {
    const auto word = load_le<std::uint32_t>(words.data() + 4 * i);
    const auto exponent = static_cast<std::uint32_t>(i / 32 % 240) + (word >> 23 & 7);
    values.push_back(std::bit_cast<float>((word & 0x807FFFFFu) | exponent << 23));
  }
  return values;
}

ByteSpan blocks_of(const Weight& w) {
  return std::get<Q8_0Parts>(w.parts()).blocks.bytes;
}

Weight quantized(const Array& x, ThreadPool& pool = test_pool()) {
  return quantize_q8_0(x.view(), pool).value().weight;
}

TEST(TypedWeight, B23_BytesAreThoseOfGgml) {
  const nlohmann::json expected = testing::digests();
  ASSERT_TRUE(expected.is_object());
  const Array x = array_of({static_cast<std::int64_t>(kBlocks), 32}, stream_floats());
  const Weight w = quantized(x);
  const ByteSpan bytes = blocks_of(w);
  EXPECT_EQ(
      testing::digest_text(bytes.size(),
                           [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); }),
      expected["quantize_q8_0"]);
}

TEST(TypedWeight, B23_EveryTypeIsReadAtFloat32) {
  std::mt19937_64 random(23);
  for (const ValueType type :
       {ValueType::kF64, ValueType::kBF16, ValueType::kF16, ValueType::kF32}) {
    const Array x = testing::random_array({5, 96}, type, random);
    std::vector<float> narrow(5 * 96);
    load_f32(x.bytes.data(), type, narrow);
    const Weight a = quantized(x), b = quantized(array_of({5, 96}, narrow));
    EXPECT_TRUE(std::ranges::equal(blocks_of(a), blocks_of(b))) << value_type_name(type);
  }
}

// A block and what it must become; missing values and quants are 0.
struct Known {
  std::vector<float> x;
  std::uint16_t scale;
  std::vector<int> quants;
};

std::vector<float> ramp() {
  std::vector<float> x;
  for (int i = 0; i < 32; ++i) x.push_back(static_cast<float>(i - 16));
  return x;
}

const Known kKnown[] = {
    {{127, .5f, -.5f, 1.5f, -1.5f, 2.5f, -2.5f, 126.5f}, 0x3C00, {127, 1, -1, 2, -2, 3, -3, 127}},
    {ramp(), 0x3008, {-127, -119, -111, -103, -95, -87, -79, -71, -64, -56, -48,
                      -40,  -32,  -24,  -16,  -8,  0,   8,   16,  24,  32,  40,
                      48,   56,   64,   71,   79,  87,  95,  103, 111, 119}},
    {{127 * 0x1p-25f, -127 * 0x1p-25f, 64 * 0x1p-25f}, 0x0000, {127, -127, 64}},
    {{8320913.0f}, 0x7BFF, {127}},
    {{8321040.0f}, 0x7C00, {127}},
    {{127 * 0x1p-128f}, 0x0000, {}},
    {{127 * (0x1p-128f + 0x1p-149f)}, 0x0000, {127}},
    {{0x1p-149f}, 0x0000, {}},
    {{INFINITY, 1, -3}, 0x7C00, {}},
};

// Whether a block became what it must.
::testing::AssertionResult becomes(const Known& known, ThreadPool& pool = test_pool()) {
  std::vector<float> x = known.x;
  x.resize(32);
  const Weight w = quantized(array_of({1, 32}, x), pool);
  const ByteSpan block = blocks_of(w);
  const auto scale = load_le<std::uint16_t>(block.data());
  if (scale != known.scale)
    return ::testing::AssertionFailure() << fmt::format("scale {:04X}", scale);
  for (std::size_t i = 0; i < 32; ++i)
    if (static_cast<std::int8_t>(block[2 + i]) != (i < known.quants.size() ? known.quants[i] : 0))
      return ::testing::AssertionFailure() << "quant " << i;
  return ::testing::AssertionSuccess();
}

TEST(TypedWeight, B24_KnownAnswers) {
  for (const Known& known : kKnown) EXPECT_TRUE(becomes(known)) << known.x[0];
  const std::vector<double> tiny = doubles(dequant(quantized(array_of({1, 32},
                                                                      [] {
                                                                        std::vector<float> x =
                                                                            kKnown[2].x;
                                                                        x.resize(32);
                                                                        return x;
                                                                      }())),
                                                   ValueType::kF32, test_pool())
                                               .value());
  EXPECT_TRUE(tiny[0] == 0 && !std::signbit(tiny[0]));
  EXPECT_TRUE(tiny[1] == 0 && std::signbit(tiny[1]));
  EXPECT_TRUE(tiny[2] == 0 && !std::signbit(tiny[2]));
}

TEST(TypedWeight, B25_ANanAtAnyPositionReachesItsWholeBlock) {
  for (std::size_t at = 0; at < 32; ++at) {
    std::vector<float> x(96, 1.0f);
    x[32 + at] = std::numeric_limits<float>::quiet_NaN();
    const Weight w = quantized(array_of({1, 96}, x));
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(blocks_of(w)[34 + 2 + i], std::byte{0});
    const std::vector<double> values = doubles(dequant(w, ValueType::kF32, test_pool()).value());
    for (std::size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(values[i]), i / 32 == 1) << at;
  }
}

TEST(TypedWeight, B26_RefusesOtherShapesAndTakesEmptyOnes) {
  const auto code_of = [](Dims dims, std::size_t values) {
    const Array x{ValueType::kF32, std::move(dims), std::vector<std::byte>(4 * values)};
    const auto made = quantize_q8_0(x.view(), test_pool());
    return made ? std::nullopt : std::optional(made.error().code);
  };
  EXPECT_EQ(code_of({2, 31}, 62), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of({32}, 32), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of({}, 1), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of({2, 32}, 63), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of({-2, 32}, 0), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of({0, 32}, 0), std::nullopt);
  EXPECT_EQ(code_of({0, 3, 64}, 0), std::nullopt);
  const Weight empty = quantized(zeros(ValueType::kF32, {0, 3, 64}));
  EXPECT_EQ(empty.shape(), (Dims{0, 3, 64}));
}

TEST(TypedWeight, B27_SameBytesForEveryThreadCount) {
  const Array x = array_of({64, 8192}, stream_floats());
  const Weight expected = quantized(x);
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const Weight w = quantize_q8_0(x.view(), pool).value().weight;
    EXPECT_TRUE(std::ranges::equal(blocks_of(w), blocks_of(expected))) << threads;
  }
}

#if defined(__x86_64__)
TEST(TypedWeight, B27_FlushToZeroWouldBeNoticed) {
  ThreadPool pool(1);
  ASSERT_TRUE(becomes(kKnown[6], pool));
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush to zero, denormals are zero
  const bool noticed = !becomes(kKnown[6], pool);
  _mm_setcsr(saved);
  EXPECT_TRUE(noticed);
}
#endif

TEST(TypedWeight, B28_ReportCountsTheBlocksThatLostTheirValues) {
  std::vector<float> x(32 * 7, 1.0f);
  x[0] = 127 * 0x1p-25f;  // stored scale 0, quants not
  std::fill(x.begin() + 1, x.begin() + 32, 0.0f);
  std::fill(x.begin() + 32, x.begin() + 64, 0x1p-149f);  // zero bytes
  x[64] = 8321040.0f;                                    // scale infinite
  x[96] = INFINITY;
  x[128] = std::numeric_limits<float>::quiet_NaN();
  std::fill(x.begin() + 160, x.begin() + 192, 0.0f);  // zeros stay zeros: nothing lost
  const BlockLoss loss = quantize_q8_0(array_of({1, 224}, x).view(), test_pool()).value().loss;
  EXPECT_EQ(loss.zero_scale, 1);
  EXPECT_EQ(loss.underflow, 1);
  EXPECT_EQ(loss.infinite, 2);
  EXPECT_EQ(loss.nan, 1);
}

}  // namespace
}  // namespace packstone
