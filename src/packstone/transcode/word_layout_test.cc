// Proves the bits of the word layouts (GPTQ, AWQ, Marlin, BitBLAS, QQQ) on worked examples: words
// written out by hand or by the definitions of the formats, not by this program.
#include "packstone/format/registry.h"
#include "packstone/transcode/test_words.h"

namespace packstone {
namespace {

using testing::constant_group;
using testing::elements;
using testing::planes_of;
using testing::weight_of;

using Words = std::vector<std::uint32_t>;

// The first words of column 0 of qweight when output 0 has these codes along the inputs.
template <class F>
Words gptq_words(const std::vector<std::uint32_t>& codes, std::size_t count) {
  const Shape shape{32, 32};
  const OwnedWeight made = planes_of(
      kFormatId<F>, shape, {32},
      [&](std::int64_t row, std::int64_t col) {
        return row == 0 ? codes[static_cast<std::size_t>(col) % codes.size()] : 0;
      },
      constant_group(1, 1));
  Words words;
  for (std::size_t i = 0; i < count; ++i) {
    words.push_back(elements<std::uint32_t>(made.planes[0], 1, 32 * i)[0]);
    EXPECT_EQ(elements<std::uint32_t>(made.planes[0], 1, 32 * i + 1)[0], 0u);
  }
  return words;
}

std::vector<std::uint32_t> stepped(std::uint32_t step, std::uint32_t start, int bits) {
  std::vector<std::uint32_t> codes(32);
  for (std::uint32_t i = 0; i < 32; ++i) codes[i] = (step * i + start) & ((1u << bits) - 1);
  return codes;
}

TEST(WordLayout, GptqContinuousCodes) {
  EXPECT_EQ(gptq_words<GptqV2<4>>({0, 1, 2, 3, 4, 5, 6, 7}, 1), Words{0x76543210});
  EXPECT_EQ(gptq_words<GptqV2<4>>({15, 8, 7, 0, 1, 9, 3, 12}, 1), Words{0xC391078F});
  EXPECT_EQ(gptq_words<GptqV2<2>>({0, 1, 2, 3}, 1), Words{0xE4E4E4E4});
  EXPECT_EQ(gptq_words<GptqV2<8>>({1, 2, 128, 255}, 1), Words{0xFF800201});
  EXPECT_EQ(gptq_words<GptqV2<3>>({0, 1, 2, 3, 4, 5, 6, 7}, 3),
            (Words{0x88FAC688, 0xC688FAC6, 0xFAC688FA}));
  EXPECT_EQ(gptq_words<Gptq<3>>(stepped(5, 3, 3), 3), (Words{0x43C67543, 0x7543C675, 0xC67543C6}));
  const OwnedWeight matrix = planes_of(
      kFormatId<Gptq<4>>, {8, 8}, {8},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(k + 2 * n) % 16; },
      constant_group(1, 8));
  EXPECT_EQ(elements<std::uint32_t>(matrix.planes[0], 8),
            (Words{0x76543210, 0x98765432, 0xBA987654, 0xDCBA9876, 0xFEDCBA98, 0x10FEDCBA,
                   0x3210FEDC, 0x543210FE}));
  EXPECT_EQ(elements<std::uint32_t>(matrix.planes[1], 1), Words{0x77777777});
}

TEST(WordLayout, GptqPlanarCodes) {
  EXPECT_EQ(gptq_words<GptqP<3>>(stepped(5, 3, 3), 3), (Words{0x93939393, 0x93939393, 0xB4B4B4B4}));
  EXPECT_EQ(gptq_words<GptqP<5>>(stepped(5, 3, 5), 5),
            (Words{0x61C72D83, 0xE94FA50B, 0x61C72D83, 0xE94FA50B, 0xE1C71E38}));
  EXPECT_EQ(gptq_words<GptqP<6>>(stepped(5, 3, 6), 6),
            (Words{0x61C72D83, 0xE94FA50B, 0x61C72D83, 0xE94FA50B, 0x03FEA540, 0x5403FA95}));
  EXPECT_EQ(
      gptq_words<GptqP<7>>(stepped(5, 3, 7), 7),
      (Words{0x61C72D83, 0xE94FA50B, 0x61C72D83, 0xE94FA50B, 0x03FEA540, 0x5403FA95, 0x01FFE000}));
  // With 8 bits planar is the continuous layout, which has one home.
  EXPECT_EQ(gptq_words<GptqV2<8>>(stepped(5, 3, 8), 8),
            (Words{0x120D0803, 0x26211C17, 0x3A35302B, 0x4E49443F, 0x625D5853, 0x76716C67,
                   0x8A85807B, 0x9E99948F}));
  EXPECT_EQ(find_layout("gptq_p", 4), kFormatId<GptqV2<4>>);
  EXPECT_EQ(find_layout("gptq_v2", 4), kFormatId<GptqV2<4>>);
  EXPECT_EQ(find_layout("gptq_p", 3), kFormatId<GptqP<3>>);
  EXPECT_EQ(find_layout("gptq_p", 5), kFormatId<GptqP<5>>);
}

// Zero points are planar along the outputs too.
TEST(WordLayout, GptqPlanarZeros) {
  const OwnedWeight made = planes_of(
      kFormatId<GptqP<5>>, {32, 32}, {32}, [](std::int64_t, std::int64_t) { return 0u; },
      [](std::int64_t row, std::int64_t) {
        return GroupValues{1, kNoOffset, static_cast<std::int32_t>((5 * row + 3) % 32)};
      });
  EXPECT_EQ(elements<std::uint32_t>(made.planes[1], 5),
            (Words{0x61C72D83, 0xE94FA50B, 0x61C72D83, 0xE94FA50B, 0xE1C71E38}));
}

template <class F>
Words zero_words(std::int64_t rows, const std::vector<std::int32_t>& zeros, std::size_t count) {
  const OwnedWeight made = planes_of(
      kFormatId<F>, {rows, 32}, {32}, [](std::int64_t, std::int64_t) { return 0u; },
      [&](std::int64_t row, std::int64_t) {
        return GroupValues{1, kNoOffset, zeros[static_cast<std::size_t>(row) % zeros.size()]};
      });
  return elements<std::uint32_t>(made.planes[1], count);
}

// D40: v1 stores zero points less one, whole words at a time, v2 as they are.
TEST(WordLayout, D40_ZeroPointsOfSymmetricWeights) {
  EXPECT_EQ(zero_words<Gptq<2>>(32, {2}, 1), Words{0x55555555});
  EXPECT_EQ(zero_words<GptqV2<2>>(32, {2}, 1), Words{0xAAAAAAAA});
  EXPECT_EQ(zero_words<Gptq<3>>(32, {4}, 3), (Words{0xDB6DB6DB, 0xB6DB6DB6, 0x6DB6DB6D}));
  EXPECT_EQ(zero_words<GptqV2<3>>(32, {4}, 3), (Words{0x24924924, 0x49249249, 0x92492492}));
  EXPECT_EQ(zero_words<Gptq<4>>(32, {8}, 1), Words{0x77777777});
  EXPECT_EQ(zero_words<GptqV2<4>>(32, {8}, 1), Words{0x88888888});
  EXPECT_EQ(zero_words<Gptq<8>>(32, {128}, 1), Words{0x7F7F7F7F});
  EXPECT_EQ(zero_words<GptqV2<8>>(32, {128}, 1), Words{0x80808080});
}

// ZP-02: a zero point of 0 borrows from its neighbours in v1 and reads back as it was.
TEST(WordLayout, Zp02BorrowsAcrossLanes) {
  const std::vector<std::int32_t> zeros{0, 15, 8, 8, 1, 2, 3, 4};
  EXPECT_EQ(zero_words<GptqV2<4>>(8, zeros, 1), Words{0x432188F0});
  EXPECT_EQ(zero_words<Gptq<4>>(8, zeros, 1), Words{0x321077DF});
  // The word of a writer that wraps every lane alone reads as the producer reads it.
  OwnedWeight made = planes_of(
      kFormatId<Gptq<4>>, {8, 32}, {32}, [](std::int64_t, std::int64_t) { return 0u; },
      constant_group(1, 8));
  store_le(made.planes[1].data(), std::uint32_t{0x321077EF});
  const PackedWeight weight = std::move(made).release("t").value();
  const std::vector<std::int32_t> read{0, 0, 9, 8, 1, 2, 3, 4};
  for (std::int64_t row = 0; row < 8; ++row) {
    std::vector<std::uint32_t> codes(32);
    GroupValues group;
    unpack_row(weight, row, codes, {&group, 1});
    EXPECT_EQ(group.center, read[static_cast<std::size_t>(row)]);
  }
}

TEST(WordLayout, GptqValuesAndActOrder) {
  const float scale = half_to_float(0x224C);  // 0.0123 in binary16
  const PackedWeight weight = weight_of(
      kFormatId<Gptq<4>>, {8, 32}, {32},
      [](std::int64_t, std::int64_t col) { return col % 2 == 0 ? 15u : 0u; },
      constant_group(scale, 8));
  EXPECT_EQ(testing::decoded(weight)[0], 0.086090087890625f);  // exact; in binary16 0x2D82
  EXPECT_EQ(float_to_half(testing::decoded(weight)[0]), 0x2D82);
  EXPECT_EQ(testing::decoded(weight)[1], -0.098388671875f);

  constexpr std::uint32_t kCodes[] = {9, 9, 7, 12};
  OwnedWeight made = planes_of(
      kFormatId<GptqV2<4>>, {8, 32}, {16, FloatType::kF16, 1, true},
      [&](std::int64_t, std::int64_t col) { return kCodes[col % 4]; },
      [](std::int64_t, std::int64_t group) {
        return GroupValues{group == 0 ? 0.5f : 0.25f, kNoOffset, 8};
      });
  for (std::size_t col = 0; col < 32; ++col)
    store_le(made.planes[3].data() + 4 * col, std::uint32_t{col % 4 == 0 || col % 4 == 3});
  const std::vector<float> values = testing::decoded(std::move(made).release("t").value());
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 4),
            (std::vector<float>{0.25f, 0.5f, -0.5f, 1.0f}));
}

TEST(WordLayout, MarlinTiles) {
  const OwnedWeight four = planes_of(
      kFormatId<Marlin<4>>, {64, 16}, {16},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(3 * k + n) % 16; },
      constant_group(1, 8));
  EXPECT_EQ(elements<std::uint32_t>(four.planes[0], 8),
            (Words{0x3BB30880, 0x3BB30880, 0x3BB30880, 0x3BB30880, 0x91196EE6, 0x91196EE6,
                   0x91196EE6, 0x91196EE6}));
  EXPECT_EQ(elements<std::uint32_t>(four.planes[0], 1, 127), Words{0xC44C9119});
  const OwnedWeight eight = planes_of(
      kFormatId<Marlin<8>>, {64, 16}, {16},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(16 * k + n) % 256; },
      constant_group(1, 128));
  EXPECT_EQ(elements<std::uint32_t>(eight.planes[0], 8),
            (Words{0x90108000, 0x98188808, 0xA0209010, 0xA8289818, 0xB030A020, 0xB838A828,
                   0xC040B030, 0xC848B838}));
  const OwnedWeight zeros = planes_of(
      kFormatId<MarlinAwq<4>>, {64, 16}, {16}, [](std::int64_t, std::int64_t) { return 0u; },
      [](std::int64_t row, std::int64_t) {
        return GroupValues{1, kNoOffset, static_cast<std::int32_t>(row % 16)};
      });
  EXPECT_EQ(elements<std::uint32_t>(zeros.planes[2], 8),
            (Words{0x88880000, 0x99991111, 0xAAAA2222, 0xBBBB3333, 0xCCCC4444, 0xDDDD5555,
                   0xEEEE6666, 0xFFFF7777}));
}

// The order of scales goes by the group being the whole row, not by its size.
TEST(WordLayout, MarlinScaleOrder) {
  const auto scale_at = [](std::int64_t cols) {
    const OwnedWeight made = planes_of(
        kFormatId<Marlin<4>>, {64, cols}, {128}, [](std::int64_t, std::int64_t) { return 0u; },
        [](std::int64_t row, std::int64_t) {
          return GroupValues{static_cast<float>(row), kNoOffset, 8};
        });
    std::vector<int> order;
    for (const std::uint16_t half : elements<std::uint16_t>(made.planes[1], 10))
      order.push_back(static_cast<int>(half_to_float(half)));
    return order;
  };
  EXPECT_EQ(scale_at(128), (std::vector<int>{0, 1, 8, 9, 16, 17, 24, 25, 2, 3}));
  EXPECT_EQ(scale_at(256), (std::vector<int>{0, 8, 16, 24, 32, 40, 48, 56, 1, 9}));
}

template <class F>
std::vector<std::uint8_t> row_bytes(const std::vector<std::uint32_t>& codes, std::int32_t zero) {
  const OwnedWeight made = planes_of(
      kFormatId<F>, {8, 32}, {32},
      [&](std::int64_t, std::int64_t col) {
        return codes[static_cast<std::size_t>(col) % codes.size()];
      },
      constant_group(1, zero));
  return elements<std::uint8_t>(made.planes[0], static_cast<std::size_t>(F::kCodeBits));
}

// D55: plain byte rows; symmetric codes are two's complement.
TEST(WordLayout, D55_BitblasRows) {
  using Bytes = std::vector<std::uint8_t>;
  const std::vector<std::uint32_t> codes{0, 15, 8, 7, 1, 2, 3, 4};
  EXPECT_EQ(row_bytes<BitblasAsym<4>>(codes, 8), (Bytes{0xF0, 0x78, 0x21, 0x43}));
  EXPECT_EQ(row_bytes<Bitblas<4>>(codes, 8), (Bytes{0x78, 0xF0, 0xA9, 0xCB}));
  EXPECT_EQ(row_bytes<BitblasAsym<2>>({0, 1, 2, 3}, 2), (Bytes{0xE4, 0xE4}));
  EXPECT_EQ(row_bytes<Bitblas<2>>({0, 1, 2, 3}, 2), (Bytes{0x4E, 0x4E}));
  const std::vector<std::uint32_t> row{2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(row_bytes<BitblasAsym<4>>(row, 8), (Bytes{0x32, 0x54, 0x76, 0x98}));
  EXPECT_EQ(row_bytes<Bitblas<4>>(row, 8), (Bytes{0xBA, 0xDC, 0xFE, 0x10}));
  EXPECT_EQ(row_bytes<BitblasAsym<3>>({1, 4, 7, 2, 5, 0, 3, 6}, 4), (Bytes{0xE1, 0x55, 0xCC}));
  EXPECT_EQ(row_bytes<BitblasAsym<5>>({3, 10, 17, 24, 31, 6, 13, 20}, 4),
            (Bytes{0x43, 0x45, 0xFC, 0x4D, 0xA3}));
}

// Words of one input when outputs 0..7 have these codes.
template <class F>
Words awq_words(const std::vector<std::uint32_t>& codes, std::size_t count) {
  const OwnedWeight made = planes_of(
      kFormatId<F>, {8, 16}, {16},
      [&](std::int64_t row, std::int64_t) { return codes[static_cast<std::size_t>(row)]; },
      constant_group(1, 1));
  return elements<std::uint32_t>(made.planes[0], count);
}

// D54, PCK-02: along the outputs; 4 bits in AWQ's nibble order, other widths as one stream.
TEST(WordLayout, D54_AwqGemm) {
  EXPECT_EQ(awq_words<AwqGemm<4>>({0, 1, 2, 3, 4, 5, 6, 7}, 1), Words{0x75316420});
  EXPECT_EQ(awq_words<AwqGemm<4>>({15, 8, 7, 0, 1, 9, 3, 12}, 1), Words{0xC908317F});
  EXPECT_EQ(awq_words<AwqGemm<2>>(stepped(3, 1, 2), 1), Words{0x0000B1B1});
  EXPECT_EQ(awq_words<AwqGemm<3>>(stepped(3, 1, 3), 1), Words{0x00CC55E1});
  EXPECT_EQ(awq_words<AwqGemm<5>>(stepped(3, 1, 5), 2), (Words{0xE0D51C81, 0x000000B4}));
  EXPECT_EQ(awq_words<AwqGemm<6>>(stepped(3, 1, 6), 2), (Words{0x0D287101, 0x00005934}));
  EXPECT_EQ(awq_words<AwqGemm<7>>(stepped(3, 1, 7), 2), (Words{0xD141C201, 0x002C4C80}));
  EXPECT_EQ(awq_words<AwqGemm<8>>(stepped(3, 1, 8), 2), (Words{0x0A070401, 0x1613100D}));
  const OwnedWeight matrix = planes_of(
      kFormatId<AwqGemm<4>>, {8, 16}, {16},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(k + 2 * n) % 16; },
      constant_group(1, 8));
  EXPECT_EQ(elements<std::uint32_t>(matrix.planes[0], 2), (Words{0xEA62C840, 0xFB73D951}));
}

// D56: words of metadata per row, and the zero points of two groups.
TEST(WordLayout, D56_AwqGemv) {
  const auto words = [](std::int64_t cols, std::int32_t group) {
    return awq_zero_words({1, cols}, {group});
  };
  EXPECT_EQ(words(4096, 128), 4);
  EXPECT_EQ(words(4096, 64), 8);
  EXPECT_EQ(words(4096, 32), 16);
  EXPECT_EQ(words(11008, 128), 11);
  EXPECT_EQ(words(11008, 64), 22);
  EXPECT_EQ(words(896, 128), 1);
  EXPECT_EQ(words(512, 64), 2);
  EXPECT_EQ(words(256, 128), 1);
  EXPECT_EQ(words(4096, 16), 32);
  EXPECT_EQ(words(896, 16), 8);
  const OwnedWeight made = planes_of(
      kFormatId<AwqGemv>, {8, 256}, {128},
      [](std::int64_t, std::int64_t col) { return static_cast<std::uint32_t>(col % 8); },
      [](std::int64_t, std::int64_t group) {
        return GroupValues{1, kNoOffset, group == 0 ? 8 : 3};
      });
  EXPECT_EQ(elements<std::uint32_t>(made.planes[0], 1), Words{0x76543210});
  EXPECT_EQ(elements<std::uint32_t>(made.planes[1], 1), Words{0x00000038});
}

// D57: four rows interleaved over 64 inputs; the offset is minus scale times zero in binary16.
TEST(WordLayout, D57_AwqGemvFast) {
  using Halves = std::vector<std::uint16_t>;
  const float scale = half_to_float(0x2A66), offset = half_to_float(0xB666);
  EXPECT_EQ(float_to_half(-scale * 8), 0xB666);
  const OwnedWeight made = planes_of(
      kFormatId<AwqGemvFast>, {4, 64}, {64},
      [](std::int64_t n, std::int64_t k) {
        return static_cast<std::uint32_t>(k / 8 + 5 * n + k) % 16;
      },
      [&](std::int64_t, std::int64_t) { return GroupValues{scale, offset, 0}; });
  EXPECT_EQ(elements<std::uint16_t>(made.planes[0], 12),
            (Halves{0xB290, 0xC3A1, 0xD4B2, 0xE5C3, 0xF6D4, 0x07E5, 0x18F6, 0x2907, 0xF6D4, 0x07E5,
                    0x18F6, 0x2907}));
  EXPECT_EQ(elements<std::uint16_t>(made.planes[0], 1, 16), Halves{0x07E5});
  EXPECT_EQ(elements<std::uint16_t>(made.planes[1], 5),
            (Halves{0x2A66, 0x2A66, 0x2A66, 0x2A66, 0}));
  EXPECT_EQ(elements<std::uint16_t>(made.planes[2], 5),
            (Halves{0xB666, 0xB666, 0xB666, 0xB666, 0}));
}

std::uint32_t qqq_code(std::int64_t n, std::int64_t k) {
  return static_cast<std::uint32_t>(k + 3 * n) % 16;
}

TEST(WordLayout, QqqTiles) {
  // The example counts stored nibbles, which are two's complement in a whole-row weight.
  const OwnedWeight whole = planes_of(
      kFormatId<Qqq>, {64, 64}, {64},
      [](std::int64_t n, std::int64_t k) { return qqq_code(n, k) ^ 8; }, constant_group(1, 8));
  EXPECT_EQ(elements<std::uint32_t>(whole.planes[0], 10),
            (Words{0x3B2A1908, 0x3B2A1908, 0x3B2A1908, 0x3B2A1908, 0x7F6E5D4C, 0x7F6E5D4C,
                   0x7F6E5D4C, 0x7F6E5D4C, 0xB3A29180, 0xB3A29180}));
  OwnedWeight grouped = OwnedWeight::allocate(kFormatId<QqqG128>, {64, 256}, {}).value();
  std::vector<std::uint32_t> codes(256);
  const std::vector<RawParams> raw(2);
  for (std::int64_t row = 0; row < 64; ++row) {
    for (std::int64_t col = 0; col < 256; ++col)
      codes[static_cast<std::size_t>(col)] = qqq_code(row, col);
    pack_row(kFormatId<QqqG128>, {64, 256}, {}, grouped.pointers().data(), row, codes, raw);
  }
  EXPECT_EQ(elements<std::uint32_t>(grouped.planes[0], 10),
            (Words{0xB931A820, 0xB931A820, 0xB931A820, 0xB931A820, 0xFD75EC64, 0xFD75EC64,
                   0xFD75EC64, 0xFD75EC64, 0x31B920A8, 0x31B920A8}));
}

// D58: a nibble stands for 16 times its two's complement value.
TEST(WordLayout, D58_QqqWholeRow) {
  for (std::uint32_t nibble = 0; nibble < 16; ++nibble) {
    const std::int32_t sign_extended = static_cast<std::int32_t>(nibble << 28) >> 28;
    EXPECT_EQ(static_cast<std::int32_t>(nibble ^ 8) * 16 - 128, 16 * sign_extended);
  }
  OwnedWeight made = OwnedWeight::allocate(kFormatId<Qqq>, {64, 64}, {64}).value();
  const float channel = 0.00625f;
  RawParams raw{{std::bit_cast<std::uint32_t>(channel)}};
  const std::vector<std::uint32_t> codes(64, 5);  // c = -3
  for (std::int64_t row = 0; row < 64; ++row)
    pack_row(kFormatId<Qqq>, {64, 64}, {64}, made.pointers().data(), row, codes, {&raw, 1});
  const PackedWeight weight = std::move(made).release("t").value();
  EXPECT_EQ(testing::decoded(weight)[0], -48.0f * channel);
}

// D59: groups of 128 round to a byte, ties to even, and clamp.
TEST(WordLayout, D59_QqqGrouped) {
  const float half = half_to_float(0x4580);  // 5.5
  EXPECT_EQ(QqqScheme::byte_level(half, 0), -44.0f);
  EXPECT_EQ(QqqScheme::byte_level(half, 3), -28.0f);
  EXPECT_EQ(QqqScheme::byte_level(half, 15), 38.0f);
  EXPECT_EQ(QqqScheme::byte_level(60, 15), 127.0f);
  EXPECT_EQ(QqqScheme::byte_level(60, 0), -128.0f);
  EXPECT_EQ(QqqScheme::byte_level(INFINITY, 9), 127.0f);
  EXPECT_TRUE(std::isnan(QqqScheme::byte_level(INFINITY, 8)));
  EXPECT_TRUE(std::isnan(QqqScheme::byte_level(NAN, 9)));
  EXPECT_FALSE(std::signbit(QqqScheme::byte_level(-half, 8)));
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const float group = half_to_float(static_cast<std::uint16_t>(pattern));
    if (!std::isfinite(group)) continue;
    for (std::uint32_t code = 0; code < 16; ++code) {
      const double product = (static_cast<double>(code) - 8) * static_cast<double>(group);
      const double want = std::clamp(std::nearbyint(product), -128.0, 127.0) + 0.0;
      ASSERT_EQ(static_cast<double>(QqqScheme::byte_level(group, code)), want);
    }
  }
}

struct Holder {
  std::string_view layout;
  std::vector<int> bits;
  std::vector<std::int32_t> groups;
};

// D37: the widths and groups of each layout, and no others.
TEST(WordLayout, D37_WidthsGroupsAndMultiples) {
  constexpr Shape kWide{64, 2048};  // group 2048: the whole row
  const std::vector<std::int32_t> gptq{16, 32, 64, 128, 256, 512, 1024, 2048};
  const std::vector<std::int32_t> tiles{32, 64, 128, 2048}, awq{16, 32, 64, 128, 2048};
  const std::vector<Holder> holders{
      {"gptq", {2, 3, 4, 8}, gptq},
      {"gptq_v2", {2, 3, 4, 8}, gptq},
      {"gptq_p", {2, 3, 4, 5, 6, 7, 8}, gptq},
      {"marlin", {4, 8}, tiles},
      {"marlin-awq", {4, 8}, tiles},
      {"bitblas", {2, 4, 8}, tiles},
      {"bitblas-asym", {2, 3, 4, 5, 6, 7, 8}, tiles},
      {"awq-gemm", {2, 3, 4, 5, 6, 7, 8}, awq},
      {"awq-gemv", {4}, {64, 128, 2048}},
      {"awq-gemv_fast", {4}, awq},
      {"llm-awq", {4}, awq},
      {"qqq", {4}, {2048}},
      {"qqq-g128", {4}, {128}},
  };
  for (const Holder& holder : holders)
    for (int bits = 1; bits <= 16; ++bits) {
      const std::optional<FormatId> id = find_layout(holder.layout, bits);
      ASSERT_EQ(id.has_value(), std::ranges::find(holder.bits, bits) != holder.bits.end())
          << holder.layout << " " << bits;
      if (!id) continue;
      for (const std::int32_t group : {8, 16, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096})
        EXPECT_EQ(layout_rule(*id, kWide, {group}) == nullptr,
                  std::ranges::find(holder.groups, group) != holder.groups.end())
            << holder.layout << " " << bits << " " << group;
      const std::int32_t group = holder.groups.back();
      EXPECT_NE(layout_rule(*id, {65, 2048}, {group}), nullptr) << holder.layout;
      EXPECT_NE(layout_rule(*id, {64, 2047}, {group}), nullptr) << holder.layout;
    }
}

// D38: a whole row need not be of a listed size, nor a multiple of 128.
TEST(WordLayout, D38_WholeRowsOfAnyWidth) {
  for (const std::int64_t cols : {96, 160, 192, 2880}) {
    const FormatParams row{static_cast<std::int32_t>(cols)};
    for (const FormatId id : {kFormatId<Gptq<4>>, kFormatId<GptqP<5>>, kFormatId<Marlin<4>>,
                              kFormatId<Bitblas<4>>, kFormatId<AwqGemm<4>>})
      EXPECT_EQ(layout_rule(id, {64, cols}, row), nullptr) << cols;
  }
  EXPECT_EQ(layout_rule(kFormatId<Qqq>, {64, 192}, {192}), nullptr);
  EXPECT_NE(layout_rule(kFormatId<Qqq>, {64, 96}, {96}), nullptr);
  EXPECT_NE(layout_rule(kFormatId<GptqP<5>>, {64, 40}, {40}), nullptr);
}

// GRP-04: group sizes that the layout has no words for are refused.
TEST(WordLayout, Grp04QqqGroups) {
  for (const std::int32_t group : {32, 64, 256, -1}) {
    EXPECT_NE(layout_rule(kFormatId<QqqG128>, {64, 512}, {group}), nullptr) << group;
    EXPECT_NE(layout_rule(kFormatId<Qqq>, {64, 512}, {group}), nullptr) << group;
  }
  EXPECT_EQ(layout_rule(kFormatId<QqqG128>, {64, 512}, {128}), nullptr);
  EXPECT_EQ(layout_rule(kFormatId<Qqq>, {64, 512}, {512}), nullptr);
  EXPECT_EQ(layout_rule(kFormatId<Qqq>, {64, 128}, {128}), nullptr);
  EXPECT_NE(layout_rule(kFormatId<QqqG128>, {64, 128}, {128}), nullptr);  // that is the whole row
}

// GRP-01, GRP-02: a short last group has its parameters; a group of 0 or -1 is none.
TEST(WordLayout, Grp01ShortLastGroup) {
  EXPECT_EQ(plane_bytes(kFormatId<Gptq<4>>, 2, {8, 192}, {128}), 2u * 8 * 2);
  EXPECT_EQ(plane_bytes(kFormatId<AwqGemm<4>>, 2, {8, 4304}, {32}), 135u * 8 * 2);
  EXPECT_NE(layout_rule(kFormatId<Gptq<4>>, {8, 100}, {128}), nullptr);  // no whole words
  EXPECT_EQ(layout_rule(kFormatId<AwqGemm<4>>, {8, 100}, {128}), nullptr);
  EXPECT_NE(layout_rule(kFormatId<Marlin<4>>, {64, 192}, {128}), nullptr);
  for (const std::int32_t group : {0, -1}) {
    EXPECT_NE(layout_rule(kFormatId<Gptq<4>>, {8, 192}, {group}), nullptr);
    EXPECT_NE(layout_rule(kFormatId<AwqGemm<4>>, {8, 192}, {group}), nullptr);
    EXPECT_NE(layout_rule(kFormatId<Bitblas<4>>, {8, 192}, {group}), nullptr);
  }
  EXPECT_EQ(layout_rule(kFormatId<Gptq<4>>, {8, 192}, {192}), nullptr);
  const PackedWeight weight = weight_of(
      kFormatId<Gptq<4>>, {8, 192}, {128}, [](std::int64_t, std::int64_t) { return 9u; },
      [](std::int64_t, std::int64_t group) {
        return GroupValues{group == 0 ? 1.0f : 2.0f, kNoOffset, 8};
      });
  const std::vector<float> values = testing::decoded(weight);
  EXPECT_EQ(values[127], 1.0f);
  EXPECT_EQ(values[128], 2.0f);
  EXPECT_EQ(values[191], 2.0f);
}

}  // namespace
}  // namespace packstone
