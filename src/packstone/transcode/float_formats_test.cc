// Proves FP8, MXFP8, MXFP4, NVFP4, bitsandbytes and compressed-tensors weights: the worked examples
// of their definitions, every code with every E8M0 scale, and the exact moves that contracts D60 to
// D63 promise, with their refusals.
#include <algorithm>
#include <cmath>

#include "packstone/format/bnb_nf4.h"
#include "packstone/transcode/transcode.h"

namespace packstone {
namespace {

constexpr FormatId kFp8 = kFormatId<Fp8<Fp8Kind::kE4M3FN>>;
constexpr FormatId kFp8Divisor = kFormatId<Fp8Divisor<Fp8Kind::kE4M3FN>>;

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> bytes(const std::vector<int>& values) {
  std::vector<std::byte> result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

// A weight of these planes, which it owns.
PackedWeight weight(FormatId id, Shape shape, const FormatParams& params,
                    std::vector<std::vector<std::byte>> planes) {
  auto owner = std::make_shared<std::vector<std::vector<std::byte>>>(std::move(planes));
  std::vector<ByteSpan> spans(owner->begin(), owner->end());
  return PackedWeight::bind(id, shape, params, spans, owner, "t").value();
}

std::vector<float> values_of(const PackedWeight& source) {
  const auto cols = static_cast<std::size_t>(source.shape().cols);
  std::vector<float> all(cols * static_cast<std::size_t>(source.shape().rows));
  for (std::int64_t row = 0; row < source.shape().rows; ++row)
    decode_row(source, row, std::span(all).subspan(static_cast<std::size_t>(row) * cols, cols));
  return all;
}

// Verdict and conditions of a move, its result checked against the source's values; and, where the
// move is not refused and `back` is true, that the way back gives the source's bytes.
TranscodePlan move(const PackedWeight& source, FormatId target, bool back,
                   PackedWeight* made = nullptr) {
  ThreadPool pool(2);
  const TranscodeTarget to{target};
  TranscodePlan plan = plan_transcode(source, to, pool);
  if (plan.verdict == Verdict::kRefused) return plan;
  const PackedWeight result = transcode(source, plan, to, {}, pool).value();
  EXPECT_TRUE(compare_values(source, {}, result, {}, pool).same_values) << result.format().name;
  if (made != nullptr) *made = result;
  if (!back) return plan;
  const TranscodeTarget home{source.id(), source.params().group_cols, source.params().metadata,
                             source.params().group_rows};
  const TranscodePlan way = plan_transcode(result, home, pool);
  EXPECT_NE(way.verdict, Verdict::kRefused) << way.reason;
  if (way.verdict == Verdict::kRefused) return plan;
  const PackedWeight again = transcode(result, way, home, {}, pool).value();
  for (int i = 0; i < source.plane_count(); ++i)
    EXPECT_TRUE(std::ranges::equal(source.plane(i), again.plane(i)))
        << source.format().name << " by " << result.format().name << ", plane " << i;
  return plan;
}

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::ranges::any_of(
      list, [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

// formats.md 7.1: one row quantized to each kind.
TEST(FloatFormats, WorkedExampleOfFp8) {
  constexpr float kWeights[8] = {0.5f, -1, 0.25f, 0, -0.1f, 0.9f, 0.03f, -0.6f};
  struct Example {
    FormatId id;
    Fp8Kind kind;
    float divisor;
    std::vector<int> codes;
  };
  const Example examples[] = {
      {kFp8Divisor, Fp8Kind::kE4M3FN, 448, {0x76, 0xFE, 0x6E, 0x00, 0xE3, 0x7D, 0x55, 0xF8}},
      {kFormatId<Fp8Divisor<Fp8Kind::kE5M2>>,
       Fp8Kind::kE5M2,
       57344,
       {0x77, 0xFB, 0x73, 0x00, 0xEE, 0x7A, 0x67, 0xF8}},
      {kFormatId<Fp8Divisor<Fp8Kind::kE4M3FNUZ>>,
       Fp8Kind::kE4M3FNUZ,
       240,
       {0x77, 0xFF, 0x6F, 0x00, 0xE4, 0x7E, 0x56, 0xF9}},
      {kFormatId<Fp8Divisor<Fp8Kind::kE5M2FNUZ>>,
       Fp8Kind::kE5M2FNUZ,
       57344,
       {0x7B, 0xFF, 0x77, 0x00, 0xF2, 0x7E, 0x6B, 0xFC}}};
  for (const Example& one : examples) {
    const PackedWeight source = weight(one.id, {1, 8}, {8, FloatType::kF32},
                                       {bytes(one.codes), bytes_of<float>({one.divisor})});
    const std::vector<float> got = values_of(source);
    for (std::size_t i = 0; i < 8; ++i) {
      const auto code = static_cast<std::uint32_t>(one.codes[i]);
      EXPECT_EQ(got[i], fp8_to_float(one.kind, code) / one.divisor);
      // No other code is nearer to the weight.
      const float wanted = kWeights[i] * one.divisor;  // in binary32, as the producer
      const float error = std::abs(wanted - fp8_to_float(one.kind, code));
      for (std::uint32_t other = 0; other < 256; ++other) {
        const float level = fp8_to_float(one.kind, other);
        if (!std::isfinite(level)) continue;
        EXPECT_LE(error, std::abs(wanted - level)) << i << " " << other;
      }
    }
  }
  EXPECT_EQ(fp8_to_float(Fp8Kind::kE4M3FN, 0x38), 1.0f);
  EXPECT_EQ(fp8_to_float(Fp8Kind::kE4M3FN, 0x30), 0.5f);
  EXPECT_EQ(fp8_to_float(Fp8Kind::kE4M3FN, 0xC0), -2.0f);
  EXPECT_EQ(fp8_to_float(Fp8Kind::kE4M3FN, 0x7E), 448.0f);
  EXPECT_EQ(fp8_to_float(Fp8Kind::kE4M3FN, 0x01), 0x1p-9f);
  EXPECT_EQ(fp8_to_float(Fp8Kind::kE4M3FN, 0x3A), 1.25f);
}

// The definition in double, code by code; and the inverse for e4m3fn.
TEST(FloatFormats, EveryCodeOfEveryFp8Kind) {
  for (const Fp8Kind kind :
       {Fp8Kind::kE4M3FN, Fp8Kind::kE5M2, Fp8Kind::kE4M3FNUZ, Fp8Kind::kE5M2FNUZ}) {
    const int m = fp8_mantissa_bits(kind);
    const int bias = (m == 3 ? 7 : 15) + is_fnuz(kind);
    int finite = 0;
    for (std::uint32_t code = 0; code < 256; ++code) {
      const float got = fp8_to_float(kind, code);
      const int exponent = static_cast<int>(code >> m & ((1u << (7 - m)) - 1));
      const double fraction = static_cast<double>(code & ((1u << m) - 1)) / (1 << m);
      double want = exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                  : std::ldexp(1 + fraction, exponent - bias);
      if (code & 0x80) want = -want;
      const std::uint32_t magnitude = code & 0x7F;
      if (is_fnuz(kind) ? code == 0x80 : m == 3 ? magnitude == 0x7F : magnitude > 0x7C) {
        EXPECT_TRUE(std::isnan(got)) << code;
        continue;
      }
      if (!is_fnuz(kind) && m == 2 && magnitude == 0x7C) want = std::copysign(INFINITY, want);
      EXPECT_EQ(bits_of(got), bits_of(static_cast<float>(want))) << fp8_name(kind) << " " << code;
      finite += (code & 0x80) == 0 && std::isfinite(got);
      std::uint32_t again = 0;
      if (kind == Fp8Kind::kE4M3FN) {
        EXPECT_TRUE(float_to_e4m3fn_exact(got, again));
        EXPECT_EQ(again, code);
      }
    }
    EXPECT_EQ(finite, is_fnuz(kind) ? 128 : m == 3 ? 127 : 124);
  }
  std::uint32_t code = 0;
  for (const float none : {449.0f, 480.0f, 0.3f, 0x1p-10f, 17.0f, INFINITY})
    EXPECT_FALSE(float_to_e4m3fn_exact(none, code)) << none;
}

// B12 to B16 in binary32, and the same for MXFP8: every code with every scale byte.
TEST(FloatFormats, EveryCodeWithEveryE8M0Scale) {
  auto check = [](FormatId id, int code_bits, auto level) {
    const std::int64_t cols = std::int64_t{1} << std::max(code_bits, 5);
    std::vector<std::byte> codes(static_cast<std::size_t>(256 * cols * code_bits / 8));
    std::vector<std::byte> scales(static_cast<std::size_t>(256 * cols / 32));
    const std::size_t in_row = codes.size() / 256, scales_in_row = scales.size() / 256;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::size_t col = i % in_row * static_cast<std::size_t>(8 / code_bits);
      codes[i] = static_cast<std::byte>(code_bits == 8 ? col : col % 16 + 16 * (col % 16 + 1));
    }
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<std::byte>(i / scales_in_row);
    const std::vector<float> got = values_of(weight(id, {256, cols}, {}, {codes, scales}));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto scale = static_cast<int>(i / static_cast<std::size_t>(cols));
      const auto code = static_cast<std::uint32_t>(i % static_cast<std::size_t>(cols));
      const double want = level(code & ((1u << code_bits) - 1)) * std::ldexp(1.0, scale - 127);
      if (scale == 255 || std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got[i])) << scale << " " << code;
      } else {
        ASSERT_EQ(bits_of(got[i]), bits_of(static_cast<float>(want))) << scale << " " << code;
      }
    }
  };
  check(kFormatId<Mxfp8>, 8,
        [](std::uint32_t code) { return double{fp8_to_float(Fp8Kind::kE4M3FN, code)}; });
  check(kFormatId<Mxfp4>, 4, [](std::uint32_t code) {
    constexpr double kMagnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -kMagnitude[code & 7] : kMagnitude[code & 7];
  });
}

// formats.md 8.3: CRC-32 of the table's bytes, its symmetry, and some of its listed patterns.
TEST(FloatFormats, DynamicMapOfBitsandbytes) {
  std::uint32_t crc = ~0u;
  for (const float value : kBnbDynamicMap)
    for (int bit = 0; bit < 32; ++bit)
      crc = ((crc ^ bits_of(value) >> bit) & 1u) != 0 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
  EXPECT_EQ(~crc, 0x1B137AEBu);
  for (std::size_t i = 0; i < 127; ++i) EXPECT_EQ(kBnbDynamicMap[i], -kBnbDynamicMap[254 - i]);
  EXPECT_EQ(bits_of(kBnbDynamicMap[127]), 0u);
  EXPECT_EQ(bits_of(kBnbDynamicMap[128]), 0x3513A3B7u);
  EXPECT_EQ(bits_of(kBnbDynamicMap[191]), 0x3DDB3334u);
  EXPECT_EQ(kBnbDynamicMap[255], 1.0f);
}

// formats.md 8.2 to 8.4.
TEST(FloatFormats, WorkedExamplesOfBitsandbytes) {
  const Shape shape{2, 4};
  const FormatParams params = bnb_4bit_params(shape, 64);
  EXPECT_EQ(params.group_cols, 4);
  EXPECT_EQ(params.group_rows, 16);
  const std::vector<float> nf4 =
      values_of(weight(kFormatId<BnbNf4>, shape, params,
                       {bytes({0xC0, 0xA7, 0x6F, 0x72}), bytes_of<float>({1.0f})}));
  const std::vector<int> nf4_codes{12, 0, 10, 7, 6, 15, 7, 2};
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(nf4[i], Nf4Scheme::level(static_cast<std::uint32_t>(nf4_codes[i]), 0)) << i;
  const std::vector<float> fp4 =
      values_of(weight(kFormatId<BnbFp4>, shape, params,
                       {bytes({0x5B, 0x70, 0xE3, 0x1A}), bytes_of<float>({1.0f})}));
  const std::vector<int> fp4_codes{5, 11, 7, 0, 14, 3, 1, 10};
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(fp4[i], BnbFp4Scheme::level(static_cast<std::uint32_t>(fp4_codes[i]), 0)) << i;
  EXPECT_EQ(bits_of(BnbFp4Scheme::level(8, 0)), 0u);

  // Statistics 0.5, 1, 2, 0.75: offset 1.0625, codes 28 75 255 47, largest difference 0.9375.
  const Shape four{4, 32};
  const std::vector<std::byte> ones(64, std::byte{0xFF});
  const std::vector<float> nested =
      values_of(weight(kFormatId<BnbNf4Nested>, four, bnb_4bit_params(four, 32, 1.0625f),
                       {ones, bytes({28, 75, 255, 47}), bytes_of<float>({0.9375f})}));
  EXPECT_FLOAT_EQ(nested[0], 0.5007324f);
  EXPECT_FLOAT_EQ(nested[32], 0.99907225f);
  EXPECT_EQ(nested[64], 2.0f);
  EXPECT_FLOAT_EQ(nested[96], 0.7512207f);

  const std::vector<float> int8 = values_of(
      weight(kFormatId<BnbInt8>, {1, 4}, {4}, {bytes({64, -127, 32, 1}), bytes_of<float>({1.0f})}));
  EXPECT_EQ(int8, (std::vector<float>{64 * BnbInt8Scheme::kOver127, -1.0f,
                                      32 * BnbInt8Scheme::kOver127, BnbInt8Scheme::kOver127}));
}

// formats.md 7.3, 9.11, 9.12 and 12.1: bytes of GGUF and of MLX for the same weights.
TEST(FloatFormats, D63_GgufFloatsToMlxBytes) {
  const PackedWeight mxfp4 = weight(kFormatId<GgufMxfp4>, {1, 32}, {},
                                    {bytes({0x7c, 0x4f, 0x7e, 0xf9, 0xd5, 0x17, 0x6f, 0x7c, 0xe3,
                                            0xa6, 0x4f, 0x7d, 0xf0, 0xc5, 0x27, 0x6e, 0xfb})});
  const std::vector<float> values = values_of(mxfp4);
  EXPECT_EQ(values[0], -0.75f);
  EXPECT_EQ(values[1], -0.5f);
  EXPECT_EQ(values[2], -0.0625f);
  EXPECT_EQ(values[3], 0.375f);
  PackedWeight made = mxfp4;
  EXPECT_EQ(move(mxfp4, kFormatId<Mxfp4>, true, &made).verdict, Verdict::kSameBytes);
  EXPECT_TRUE(std::ranges::equal(
      made.plane(0),
      bytes_of<std::uint32_t>({0x3CF759EFu, 0xBE750DF6u, 0xE761DF74u, 0xF62CF74Au})));
  EXPECT_EQ(made.plane(1)[0], std::byte{0x7C});

  const PackedWeight nvfp4 =
      weight(kFormatId<GgufNvfp4>, {1, 64}, {},
             {bytes({0x22, 0x22, 0x21, 0x22, 0x6f, 0xfd, 0xd9, 0x04, 0x57, 0x7e, 0xeb, 0xa2,
                     0xa3, 0x46, 0x6f, 0xec, 0xc1, 0x25, 0x67, 0xfe, 0xfe, 0xd9, 0x05, 0x57,
                     0x7e, 0xec, 0xb3, 0x46, 0x46, 0x6f, 0xec, 0xc1, 0x25, 0x67, 0xfe, 0xda})});
  EXPECT_EQ(move(nvfp4, kFormatId<MlxNvfp4>, true, &made).verdict, Verdict::kSameBytes);
  EXPECT_TRUE(std::ranges::equal(made.plane(0).first(8),
                                 bytes_of<std::uint32_t>({0x2BE749DFu, 0xAE750DF6u})));
  EXPECT_TRUE(std::ranges::equal(made.plane(1), bytes({0x22, 0x22, 0x21, 0x22})));
  for (const FormatId id : {kFormatId<CtNvfp4>, kFormatId<ModeloptNvfp4>}) {
    const TranscodePlan plan = move(nvfp4, id, true, &made);
    EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes) << plan.reason;
    EXPECT_TRUE(std::ranges::equal(made.plane(2), bytes_of<float>({1.0f})));
  }
  // Byte 0x95 is 3.0, then -0.5; scale 0x38 is 1.
  const std::vector<float> modelopt = values_of(
      weight(kFormatId<ModeloptNvfp4>, {1, 16}, {},
             {std::vector<std::byte>(8, std::byte{0x95}), bytes({0x38}), bytes_of<float>({2.0f})}));
  EXPECT_EQ(modelopt[0], 6.0f);
  EXPECT_EQ(modelopt[1], -1.0f);
  // No affine layout of 4 bits holds the 25 levels; the refusal names what keeps the codes.
  const TranscodePlan refused = move(mxfp4, kFormatId<MlxAffine<4>>, false);
  EXPECT_EQ(refused.verdict, Verdict::kRefused);
  EXPECT_NE(refused.reason.find("gguf.mxfp4"), std::string::npos) << refused.reason;
  EXPECT_NE(refused.reason.find("mxfp4"), std::string::npos) << refused.reason;
}

// A ggml scale byte that other readers would take for another number does not move.
TEST(FloatFormats, B22_ScaleBytesOfNvfp4Dialects) {
  auto gguf = [](int scale) {
    std::vector<int> block(36, 0x21);
    std::fill_n(block.begin(), 4, scale);
    return weight(kFormatId<GgufNvfp4>, {1, 64}, {}, {bytes(block)});
  };
  EXPECT_EQ(values_of(gguf(0x7F))[0], 0.0f);
  EXPECT_EQ(values_of(gguf(0xFF))[0], 240.0f);
  EXPECT_EQ(values_of(gguf(0xB8))[0], 0.5f);
  PackedWeight made = gguf(0);
  EXPECT_EQ(move(gguf(0x7F), kFormatId<MlxNvfp4>, false, &made).verdict, Verdict::kSameValues);
  EXPECT_EQ(made.plane(1)[0], std::byte{0});
  EXPECT_EQ(move(gguf(0xB8), kFormatId<MlxNvfp4>, false, &made).verdict, Verdict::kSameValues);
  EXPECT_EQ(made.plane(1)[0], std::byte{0x38});
  const TranscodePlan refused = move(gguf(0xFF), kFormatId<MlxNvfp4>, false);
  EXPECT_EQ(refused.verdict, Verdict::kRefused);
  EXPECT_NE(refused.reason.find("480"), std::string::npos) << refused.reason;
  // NaN and negative scales of MLX have no byte in GGUF.
  for (const int scale : {0x7F, 0xFF, 0xB8, 0x80}) {
    const PackedWeight mlx =
        weight(kFormatId<MlxNvfp4>, {1, 64}, {},
               {std::vector<std::byte>(32, std::byte{0x21}), bytes(std::vector<int>(4, scale))});
    EXPECT_EQ(move(mlx, kFormatId<GgufNvfp4>, false).verdict, Verdict::kRefused) << scale;
    EXPECT_EQ(move(mlx, kFormatId<CtNvfp4>, true).verdict, Verdict::kSameValuesMoreBytes) << scale;
  }
}

// One row per scale; codes 0, 1, 2, ... without the NaN codes.
PackedWeight fp8_rows(FormatId id, const std::vector<float>& scales, std::int32_t group_rows = 1,
                      bool with_nan = false, std::int64_t cols = 32) {
  const auto rows = static_cast<std::int64_t>(scales.size()) * group_rows;
  std::vector<int> codes;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const int code = static_cast<int>(i * 37 % 256);
    codes.push_back((code & 0x7F) == 0x7F && !with_nan ? 5 : code);
  }
  if (with_nan) codes[9] = 0x7F;
  return weight(id, {rows, cols}, {static_cast<std::int32_t>(cols), FloatType::kF32, group_rows},
                {bytes(codes), bytes_of(scales)});
}

TEST(FloatFormats, D60_Fp8ToMxfp8OnlyWhereExact) {
  constexpr FormatId kMxfp8 = kFormatId<Mxfp8>;
  PackedWeight made = fp8_rows(kFp8, {1});
  TranscodePlan plan = move(fp8_rows(kFp8, {1, 1, 1}), kMxfp8, true, &made);
  EXPECT_EQ(plan.verdict, Verdict::kSameBytes) << plan.reason;
  EXPECT_TRUE(std::ranges::equal(made.plane(1), bytes({127, 127, 127})));
  EXPECT_EQ(move(fp8_rows(kFp8, {0.25f, 0x1p-127f, 0x1p127f}), kMxfp8, true, &made).verdict,
            Verdict::kSameBytes);
  EXPECT_TRUE(std::ranges::equal(made.plane(1), bytes({125, 0, 254})));
  // One scale for the tensor.
  EXPECT_NE(move(fp8_rows(kFp8, {0.5f}, 4), kMxfp8, true).verdict, Verdict::kRefused);
  // A divisor: its reciprocal is stored.
  plan = move(fp8_rows(kFp8Divisor, {1, 4, 0.125f}), kMxfp8, true, &made);
  EXPECT_NE(plan.verdict, Verdict::kRefused) << plan.reason;
  EXPECT_TRUE(std::ranges::equal(made.plane(1), bytes({127, 125, 130})));
  EXPECT_NE(move(fp8_rows(kFp8Divisor, {0.5f}, 4), kMxfp8, true).verdict, Verdict::kRefused);

  for (const float scale : {448.0f, 0.3f, -1.0f, 0.0f, -0.0f, INFINITY, NAN, 0x1p-128f}) {
    for (const FormatId id : {kFp8, kFp8Divisor}) {
      if (id == kFp8Divisor && scale == 0x1p-128f) continue;
      const TranscodePlan refused = move(fp8_rows(id, {scale}), kMxfp8, false);
      EXPECT_EQ(refused.verdict, Verdict::kRefused) << format_info(id).name << " " << scale;
      EXPECT_NE(refused.reason.find("float32"), std::string::npos) << refused.reason;
    }
  }
  const TranscodePlan nan = move(fp8_rows(kFp8, {1}, 1, true), kMxfp8, false);
  EXPECT_EQ(nan.verdict, Verdict::kRefused);
  EXPECT_NE(nan.reason.find("row 0, column 9"), std::string::npos) << nan.reason;
  EXPECT_EQ(move(fp8_rows(kFp8, {1}, 1, false, 33), kMxfp8, false).verdict, Verdict::kRefused);
  for (const FormatId id : {kFormatId<Fp8<Fp8Kind::kE5M2>>, kFormatId<Fp8<Fp8Kind::kE4M3FNUZ>>})
    EXPECT_EQ(move(fp8_rows(id, {1}), kMxfp8, false).verdict, Verdict::kRefused);
}

TEST(FloatFormats, DivisorAndMultiplierAreReciprocal) {
  PackedWeight made = fp8_rows(kFp8, {1});
  TranscodePlan plan =
      move(fp8_rows(kFp8Divisor, {4, 0x1p126f, -0.5f}, 1, true), kFp8, true, &made);
  EXPECT_NE(plan.verdict, Verdict::kRefused) << plan.reason;
  const TranscodePlan back = move(fp8_rows(kFp8, {4, 0x1p-126f, -0.5f}), kFp8Divisor, true);
  EXPECT_NE(back.verdict, Verdict::kRefused) << back.reason;
  const TranscodePlan refused = move(fp8_rows(kFp8Divisor, {448}), kFp8, false);
  EXPECT_EQ(refused.verdict, Verdict::kRefused);
  EXPECT_NE(refused.reason.find("power of two"), std::string::npos) << refused.reason;
}

TEST(FloatFormats, D61_BitsandbytesStaysPacked) {
  std::vector<std::byte> codes(17 * 320 / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 7 % 256);
  std::vector<int> statistics;
  for (int i = 0; i < 85; ++i) statistics.push_back(i * 3 % 256);
  const Shape shape{17, 320};
  const PackedWeight nested =
      weight(kFormatId<BnbNf4Nested>, shape, bnb_4bit_params(shape, 64, 0.25f),
             {codes, bytes(statistics), bytes_of<float>({0.5f})});
  PackedWeight made = nested;
  const TranscodePlan plan = move(nested, kFormatId<BnbNf4>, false, &made);
  EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes) << plan.reason;
  EXPECT_TRUE(std::ranges::equal(made.plane(0), nested.plane(0)));
  for (const FormatId id :
       {kFormatId<MlxAffine<4>>, kFormatId<BnbFp4>, kFormatId<Mxfp4>, kFormatId<BnbNf4Nested>})
    EXPECT_EQ(move(made, id, false).verdict, Verdict::kRefused) << format_info(id).name;

  // Blocks that cross the ends of rows.
  const Shape odd{4, 96};
  std::vector<std::byte> few(codes.begin(), codes.begin() + 192);
  const PackedWeight crossing =
      weight(kFormatId<BnbNf4Nested>, odd, bnb_4bit_params(odd, 64, 0.25f),
             {few, bytes({9, 80, 200, 255, 128, 3}), bytes_of<float>({0.5f})});
  EXPECT_EQ(move(crossing, kFormatId<BnbNf4>, false, &made).verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(made.params(), bnb_4bit_params(odd, 64));
}

PackedWeight int8_rows(std::int64_t cols, const std::vector<float>& scb, int code = -1) {
  std::vector<int> codes;
  for (std::int64_t i = 0; i < cols * static_cast<std::int64_t>(scb.size()); ++i)
    codes.push_back(code >= 0 ? code : static_cast<int>(i * 5 % 255) - 127);
  return weight(kFormatId<BnbInt8>, {static_cast<std::int64_t>(scb.size()), cols},
                {static_cast<std::int32_t>(cols)}, {bytes(codes), bytes_of(scb)});
}

// Group 128, else 64, else 32; exact values or a refusal.
TEST(FloatFormats, D61_Int8ToAffineWhereExact) {
  constexpr FormatId kAffine = kFormatId<MlxAffine<8>>;
  PackedWeight made = int8_rows(32, {127});
  for (const auto& [cols, group] : {std::pair{384, 128}, {192, 64}, {96, 32}}) {
    const TranscodePlan plan = move(int8_rows(cols, {127, 0, 254}), kAffine, false, &made);
    ASSERT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes) << plan.reason;
    EXPECT_EQ(plan.params.group_cols, group);
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(cols));
    std::vector<GroupValues> groups(static_cast<std::size_t>(cols / group));
    unpack_row(made, 0, codes, groups);
    EXPECT_EQ(codes[1], 6u);  // -122 + 128
    EXPECT_EQ(groups[0].scale, 1.0f);
    EXPECT_EQ(groups[0].offset, -128.0f);
  }
  const TranscodePlan refused = move(int8_rows(64, {0.37f}), kAffine, false);
  EXPECT_EQ(refused.verdict, Verdict::kRefused);
  EXPECT_NE(refused.reason.find("bnb.int8"), std::string::npos) << refused.reason;
  EXPECT_EQ(move(int8_rows(40, {127}), kAffine, false).verdict, Verdict::kRefused);
  EXPECT_EQ(move(int8_rows(64, {127}, 12), kFormatId<GgufQ8_0>, false).verdict,
            Verdict::kSameValues);
}

// The type's own width in groups of 32; groups of 16 have no affine home. Pair tests move values.
TEST(FloatFormats, D62_GgufTypesToAffineByWidth) {
  struct Move {
    FormatId from, to;
    Verdict best;
  };
  const Move moves[] = {
      {kFormatId<GgufQ4_0>, kFormatId<MlxAffine<4>>, Verdict::kSameValuesMoreBytes},
      {kFormatId<GgufQ4_1>, kFormatId<MlxAffine<4>>, Verdict::kSameBytes},
      {kFormatId<GgufQ8_0>, kFormatId<MlxAffine<8>>, Verdict::kSameValuesMoreBytes},
      {kFormatId<GgufQ4_K>, kFormatId<MlxAffine<4>>, Verdict::kSameValuesMoreBytes},
      {kFormatId<GgufQ5_K>, kFormatId<MlxAffine<5>>, Verdict::kSameValuesMoreBytes},
      {kFormatId<GgufQ6_K>, kFormatId<MlxAffine<6>>, Verdict::kRefused}};
  for (const Move& one : moves) {
    const TranscodePlan plan = header_verdict(one.from, {4, 256}, {}, {one.to});
    EXPECT_EQ(plan.verdict, one.best) << format_info(one.from).name;
    if (plan.verdict != Verdict::kRefused) {
      EXPECT_EQ(plan.params.group_cols, 32) << format_info(one.from).name;
    } else {
      EXPECT_NE(plan.reason.find("groups of 16"), std::string::npos) << plan.reason;
    }
  }
}

// Tables of whole levels become wide linear layouts; lost signs of zero are counted.
TEST(FloatFormats, D62_WholeLevelsToAffine) {
  std::vector<int> block(17, 0x21);
  block[0] = 120;
  block[3] = 0x8F;
  const PackedWeight source = weight(kFormatId<GgufMxfp4>, {1, 32}, {}, {bytes(block)});
  for (const FormatId id :
       {kFormatId<MlxAffine<5>>, kFormatId<MlxAffine<8>>, kFormatId<GgufQ8_0>}) {
    const TranscodePlan plan = move(source, id, false);
    EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes) << plan.reason;
    EXPECT_TRUE(contains(plan.conditions, "1 zeros change their sign, first at row 0, column 18"))
        << plan.conditions.size();
  }
  block[0] = 10;  // 2^-117: only float32 metadata
  const PackedWeight tiny = weight(kFormatId<GgufMxfp4>, {1, 32}, {}, {bytes(block)});
  EXPECT_NE(move(tiny, kFormatId<MlxAffine<8>>, false).verdict, Verdict::kRefused);
  EXPECT_EQ(move(tiny, kFormatId<GgufQ8_0>, false).verdict, Verdict::kRefused);
  block[0] = 255;  // NaN
  const PackedWeight nan = weight(kFormatId<GgufMxfp4>, {1, 32}, {}, {bytes(block)});
  const TranscodePlan plan = move(nan, kFormatId<Mxfp4>, true);
  EXPECT_EQ(plan.verdict, Verdict::kSameBytes);
  EXPECT_TRUE(contains(plan.conditions, "1 groups with a non-finite scale"));
}

// Packed integers of compressed-tensors to the layouts that hold the same linear codes, and back.
TEST(FloatFormats, PackedIntegersMoveBothWays) {
  std::vector<std::byte> codes(3 * 64 / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 11 % 256);
  const FormatParams params{32, FloatType::kF16};
  const std::vector<std::uint16_t> scales{0x3400, 0x2E00, 0xB000, 0x3800, 0x3C00, 0x0400};
  const PackedWeight symmetric =
      weight(kFormatId<CtPack<4, true>>, {3, 64}, params, {codes, bytes_of(scales)});
  EXPECT_EQ(move(symmetric, kFormatId<GgufQ4_0>, true).verdict, Verdict::kSameBytes);
  EXPECT_EQ(move(symmetric, kFormatId<MlxAffine<4>>, true).verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_NE(move(symmetric, kFormatId<CtPack<4, false>>, true).verdict, Verdict::kRefused);
  const PackedWeight asymmetric =
      weight(kFormatId<CtPack<4, false>>, {3, 64}, params,
             {codes, bytes_of(scales), bytes_of<std::uint32_t>({0x00000390u, 0x00000F71u})});
  const TranscodePlan plan = move(asymmetric, kFormatId<MlxAffine<4>>, false);
  EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes) << plan.reason;
}

}  // namespace
}  // namespace packstone
