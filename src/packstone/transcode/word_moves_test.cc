// Proves the exact moves between the word layouts (GPTQ, AWQ, Marlin, BitBLAS, QQQ) and to and from
// MLX, by the numbers of the contracts they keep: same values, and the same bytes on the way back.
#include <numeric>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/transcode/test_words.h"

namespace packstone {
namespace {

using testing::constant_group;
using testing::decoded;
using testing::elements;
using testing::planes_of;
using testing::same_planes;
using testing::weight_of;

constexpr std::uint64_t kSeed = 20261201;
constexpr Shape kShape{64, 256};

struct Move {
  TranscodePlan plan;
  PackedWeight made;
};

// The move that must not be refused; values are equal.
Move moved(const PackedWeight& source, const TranscodeTarget& target) {
  ThreadPool pool(1);
  TranscodePlan plan = plan_transcode(source, target, pool);
  EXPECT_NE(plan.verdict, Verdict::kRefused) << plan.reason;
  PackedWeight made = transcode(source, plan, target, {}, pool).value();
  EXPECT_TRUE(compare_values(source, {}, made, {}, pool).same_values)
      << source.format().name << " to " << made.format().name;
  return {std::move(plan), std::move(made)};
}

TranscodePlan refused(const PackedWeight& source, const TranscodeTarget& target) {
  ThreadPool pool(1);
  TranscodePlan plan = plan_transcode(source, target, pool);
  EXPECT_EQ(plan.verdict, Verdict::kRefused)
      << source.format().name << " to " << format_info(target.id).name;
  return plan;
}

// There and back: the source's bytes.
void there_and_back(const PackedWeight& source, FormatId target) {
  const Move there = moved(source, {target});
  const Move back = moved(there.made, {source.id(), source.params().group_cols});
  EXPECT_TRUE(same_planes(source, back.made))
      << source.format().name << " to " << format_info(target).name;
}

// Random codes and scales; zero points in [low, high].
PackedWeight random_words(FormatId id, Shape shape, const FormatParams& params, int low, int high,
                          std::uint64_t seed = kSeed) {
  std::mt19937_64 random(seed);
  const std::uint32_t mask = (1u << format_info(id).code_bits) - 1;
  return weight_of(
      id, shape, params,
      [&](std::int64_t, std::int64_t) { return static_cast<std::uint32_t>(random()) & mask; },
      [&](std::int64_t, std::int64_t) {
        const auto half = static_cast<std::uint16_t>(0x2000 + random() % 0x1000);
        return GroupValues{
            half_to_float(half), kNoOffset,
            low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1))};
      });
}

template <class F>
PackedWeight random_of(const FormatParams& params, int low, int high) {
  return random_words(kFormatId<F>, kShape, params, low, high);
}

// D64: every layout of four bits with stored zero points holds every other's weight, and the way
// back gives its bytes.
TEST(WordMoves, D64_FourBitsWithZeroPoints) {
  const std::vector<FormatId> layouts{
      kFormatId<Gptq<4>>, kFormatId<GptqV2<4>>,    kFormatId<AwqGemm<4>>,
      kFormatId<AwqGemv>, kFormatId<MarlinAwq<4>>, kFormatId<BitblasAsym<4>>,
  };
  for (const FormatId from : layouts) {
    const PackedWeight source = random_words(from, kShape, {128}, 0, 15);
    for (const FormatId to : layouts) there_and_back(source, to);
    there_and_back(source, kFormatId<MlxAffine<4>>);
  }
}

// The same of symmetric weights, whose center is not stored.
TEST(WordMoves, D64_SymmetricWeights) {
  for (const FormatId from : {kFormatId<Marlin<4>>, kFormatId<Bitblas<4>>, kFormatId<Gptq<4>>})
    for (const FormatId to : {kFormatId<Marlin<4>>, kFormatId<Bitblas<4>>, kFormatId<Gptq<4>>,
                              kFormatId<GptqV2<4>>, kFormatId<AwqGemm<4>>, kFormatId<MlxAffine<4>>})
      there_and_back(random_words(from, kShape, {64}, 8, 8), to);
  for (const FormatId to : {kFormatId<Gptq<8>>, kFormatId<Bitblas<8>>, kFormatId<MarlinAwq<8>>,
                            kFormatId<AwqGemm<8>>, kFormatId<MlxAffine<8>>, kFormatId<GgufQ8_0>})
    there_and_back(random_words(kFormatId<Marlin<8>>, kShape, {32}, 128, 128), to);
  // Groups of 32 and the center 8 are GGUF's too.
  there_and_back(random_words(kFormatId<GgufQ4_0>, kShape, {}, 8, 8), kFormatId<Gptq<4>>);
  there_and_back(random_words(kFormatId<GgufQ4_0>, kShape, {}, 8, 8), kFormatId<Marlin<4>>);
  there_and_back(random_words(kFormatId<GgufQ8_0>, kShape, {}, 128, 128), kFormatId<Gptq<8>>);
}

// D49, D50: every width of GPTQ to MLX's rows, one stream of bits, and back.
TEST(WordMoves, D50_EveryWidthToMlxAndBack) {
  there_and_back(random_of<Gptq<2>>({32}, 0, 3), kFormatId<MlxAffine<2>>);
  there_and_back(random_of<Gptq<3>>({32}, 0, 7), kFormatId<MlxAffine<3>>);
  there_and_back(random_of<GptqV2<3>>({64}, 0, 7), kFormatId<MlxAffine<3>>);
  there_and_back(random_of<GptqP<3>>({64}, 0, 7), kFormatId<MlxAffine<3>>);
  there_and_back(random_of<GptqV2<4>>({128}, 0, 15), kFormatId<MlxAffine<4>>);
  there_and_back(random_of<GptqP<5>>({32}, 0, 31), kFormatId<MlxAffine<5>>);
  there_and_back(random_of<GptqP<6>>({32}, 0, 63), kFormatId<MlxAffine<6>>);
  there_and_back(random_of<Gptq<8>>({64}, 0, 255), kFormatId<MlxAffine<8>>);
  there_and_back(random_of<AwqGemm<5>>({64}, 0, 31), kFormatId<MlxAffine<5>>);
  there_and_back(random_of<BitblasAsym<6>>({64}, 0, 63), kFormatId<MlxAffine<6>>);
  // The words of MLX for codes (5 i + 3) mod 2^b, i = 0..31.
  const auto words = [](FormatId from, FormatId to, int bits, std::size_t count) {
    const PackedWeight source = weight_of(
        from, {32, 32}, {32},
        [=](std::int64_t, std::int64_t col) {
          return static_cast<std::uint32_t>(5 * col + 3) & ((1u << bits) - 1);
        },
        constant_group(1, 4));
    return elements<std::uint32_t>(moved(source, {to}).made.plane(0), count);
  };
  EXPECT_EQ(
      words(kFormatId<GptqP<5>>, kFormatId<MlxAffine<5>>, 5, 5),
      (std::vector<std::uint32_t>{0x79793503, 0xFD560B30, 0x77137249, 0x1BB45871, 0xF668F514}));
  EXPECT_EQ(words(kFormatId<GptqP<6>>, kFormatId<MlxAffine<6>>, 6, 6),
            (std::vector<std::uint32_t>{0x1748D203, 0x5C2B9A17, 0x38913FEB, 0x2789D613, 0x503BDB1B,
                                        0x79950F28}));
}

// D49: the bias is -zero * scale; where 16 bits do not hold it, the metadata is float32.
TEST(WordMoves, D49_BiasesAreExact) {
  const float scale = half_to_float(0x224C);
  const auto biases = [&](std::int32_t zero) {
    const PackedWeight source = weight_of(
        kFormatId<GptqV2<4>>, {32, 32}, {32},
        [](std::int64_t, std::int64_t col) { return static_cast<std::uint32_t>(col) % 16; },
        constant_group(scale, zero));
    return moved(source, {kFormatId<MlxAffine<4>>});
  };
  const Move even = biases(8);
  EXPECT_EQ(even.plan.params.metadata, FloatType::kF16);
  EXPECT_EQ(half_to_float(elements<std::uint16_t>(even.made.plane(2), 1)[0]), -0.098388671875f);
  const Move odd = biases(13);
  EXPECT_EQ(odd.plan.params.metadata, FloatType::kF32);
  EXPECT_EQ(elements<float>(odd.made.plane(1), 1)[0], scale);
  EXPECT_EQ(elements<float>(odd.made.plane(2), 1)[0], -13 * scale);
}

// D51: 7-bit codes go to 8 bits unchanged, and the growth is reported.
TEST(WordMoves, D51_SevenBitsGrow) {
  for (const FormatId from :
       {kFormatId<GptqP<7>>, kFormatId<AwqGemm<7>>, kFormatId<BitblasAsym<7>>}) {
    const PackedWeight source = random_words(from, kShape, {64}, 0, 127);
    const Move move = moved(source, {kFormatId<MlxAffine<8>>});
    EXPECT_EQ(move.plan.verdict, Verdict::kSameValuesMoreBytes);
    std::vector<std::uint32_t> a(256), b(256);
    std::vector<GroupValues> groups(4);
    unpack_row(source, 5, a, groups);
    unpack_row(move.made, 5, b, groups);
    EXPECT_EQ(a, b);
    const Move back = moved(move.made, {from, 64});
    EXPECT_TRUE(same_planes(source, back.made));
  }
}

// D52: large and whole-row groups are cut into groups of 128 with equal metadata.
TEST(WordMoves, D52_LargeGroupsAreCut) {
  for (const std::int32_t group : {256, 512}) {
    const PackedWeight source = random_words(kFormatId<GptqV2<4>>, {32, 512}, {group}, 0, 15);
    const Move move = moved(source, {kFormatId<MlxAffine<4>>});
    EXPECT_EQ(move.plan.params.group_cols, 128);
    std::vector<std::uint32_t> a(512), b(512);
    std::vector<GroupValues> wide(static_cast<std::size_t>(512 / group)), narrow(4);
    unpack_row(source, 3, a, wide);
    unpack_row(move.made, 3, b, narrow);
    EXPECT_EQ(a, b);
    EXPECT_EQ(narrow[0].scale, narrow[1].scale);
    const Move back = moved(move.made, {kFormatId<GptqV2<4>>, group});
    EXPECT_TRUE(same_planes(source, back.made));
  }
}

// D53: groups of 16 have no place in MLX's affine rows as one tensor: refused by name, while word
// layouts with groups of 16 take them.
TEST(WordMoves, D53_GroupsOf16) {
  const PackedWeight source = random_of<Gptq<4>>({16}, 0, 15);
  EXPECT_NE(refused(source, {kFormatId<MlxAffine<4>>}).reason.find("groups of 16"),
            std::string::npos);
  there_and_back(source, kFormatId<AwqGemm<4>>);
  const PackedWeight awq = random_of<AwqGemm<4>>({16}, 0, 15);
  there_and_back(awq, kFormatId<GptqV2<4>>);
}

// D40, vllm#38966: a v1 file read as v2 is off by exactly one step, everywhere.
TEST(WordMoves, D40_MislabelledZeroPointsAreOneStepOff) {
  const PackedWeight v1 = random_of<Gptq<4>>({128}, 1, 15);
  std::vector<ByteSpan> planes;
  for (int i = 0; i < v1.plane_count(); ++i) planes.push_back(v1.plane(i));
  const PackedWeight as_v2 =
      PackedWeight::bind(kFormatId<GptqV2<4>>, kShape, v1.params(), planes, v1.owner(), "t")
          .value();
  const std::vector<float> a = decoded(v1), b = decoded(as_v2);
  for (std::int64_t row = 0; row < kShape.rows; ++row) {
    std::vector<std::uint32_t> codes(256);
    std::vector<GroupValues> groups(2);
    unpack_row(v1, row, codes, groups);
    for (std::size_t col = 0; col < 256; ++col) {
      const std::size_t at = static_cast<std::size_t>(row) * 256 + col;
      const auto& group = groups[col / 128];
      ASSERT_EQ(b[at], group.scale *
                           (static_cast<float>(codes[col]) - static_cast<float>(group.center - 1)));
      ASSERT_NE(a[at], b[at]);
    }
  }
}

// PCK-02: AWQ to GPTQ to AWQ, matrix w[k][n] = (3 k + 5 n) mod 16 with zeros (g + n) mod 16.
TEST(WordMoves, Pck02AwqAndGptqOrders) {
  const PackedWeight awq = weight_of(
      kFormatId<AwqGemm<4>>, {16, 64}, {32},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(3 * k + 5 * n) % 16; },
      [](std::int64_t n, std::int64_t g) {
        return GroupValues{0.5f, kNoOffset, static_cast<std::int32_t>((g + n) % 16)};
      });
  for (const FormatId to : {kFormatId<Gptq<4>>, kFormatId<GptqV2<4>>}) {
    const Move there = moved(awq, {to});
    EXPECT_EQ(there.plan.verdict, Verdict::kSameValuesMoreBytes);  // by the group numbers
    EXPECT_EQ(decoded(awq), decoded(there.made));
    EXPECT_TRUE(same_planes(awq, moved(there.made, {awq.id(), 32}).made));
  }
}

// PCK-03: zero point 9 is no symmetric weight: refused where codes would leave their bits, exact
// where they fit, and back.
TEST(WordMoves, Pck03UnsignedToSignedLevels) {
  const PackedWeight wide = random_of<AwqGemm<4>>({64}, 9, 9);
  EXPECT_NE(refused(wide, {kFormatId<Marlin<4>>}).reason.find("do not fit"), std::string::npos);
  refused(wide, {kFormatId<Bitblas<4>>});
  const PackedWeight narrow = weight_of(
      kFormatId<AwqGemm<4>>, kShape, {64},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(n + k) % 15 + 1; },
      constant_group(0.25f, 9));
  for (const FormatId to : {kFormatId<Marlin<4>>, kFormatId<Bitblas<4>>}) {
    const Move there = moved(narrow, {to});
    EXPECT_EQ(decoded(narrow), decoded(there.made));
    moved(there.made, {narrow.id(), 64});
  }
  // Wider signed levels take all.
  moved(wide, {kFormatId<Bitblas<8>>});
}

// ZP-02: zero points 0 to 15 in turn, through v1, whose words borrow, and v2.
TEST(WordMoves, Zp02EveryZeroPoint) {
  const PackedWeight awq = weight_of(
      kFormatId<AwqGemm<4>>, kShape, {32},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(n * 7 + k) % 16; },
      [](std::int64_t n, std::int64_t g) {
        return GroupValues{0.125f, kNoOffset, static_cast<std::int32_t>((n + g) % 16)};
      });
  const Move v1 = moved(awq, {kFormatId<Gptq<4>>});
  const Move v2 = moved(v1.made, {kFormatId<GptqV2<4>>});
  EXPECT_EQ(v2.plan.verdict, Verdict::kSameBytes);
  EXPECT_TRUE(same_planes(v1.made, moved(v2.made, {kFormatId<Gptq<4>>, 32}).made));
  EXPECT_TRUE(same_planes(awq, moved(v2.made, {awq.id(), 32}).made));
  for (const FormatId id : {kFormatId<Gptq<2>>, kFormatId<Gptq<3>>, kFormatId<Gptq<8>>}) {
    const int most = (1 << format_info(id).code_bits) - 1;
    const PackedWeight source = random_words(id, kShape, {32}, 0, most);
    there_and_back(source,
                   find_format(fmt::format("gptq_v2.w{}", format_info(id).code_bits)).value());
  }
}

// D56: padding of GEMV's metadata is never read; the way back is not the source's bytes, because
// padding is not carried.
TEST(WordMoves, D56_GarbageInPadding) {
  OwnedWeight owned = planes_of(
      kFormatId<AwqGemv>, {8, 192}, {64},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(n + k) % 16; },
      constant_group(0.5f, 7));
  std::vector<std::byte> clean_zeros = owned.planes[1], clean_scales = owned.planes[2];
  for (std::size_t row = 0; row < 8; ++row) {
    for (std::size_t byte = 2; byte < 8; ++byte) owned.planes[1][8 * row + byte] = std::byte{0xA5};
    for (std::size_t byte = 6; byte < 32; ++byte)
      owned.planes[2][32 * row + byte] = std::byte{0x7E};
  }
  const PackedWeight source = std::move(owned).release("t").value();
  const std::vector<float> values = decoded(source);
  EXPECT_EQ(values[0], -3.5f);
  EXPECT_EQ(values[191], 4.0f);
  const Move there = moved(source, {kFormatId<MlxAffine<4>>});
  EXPECT_NE(there.plan.verdict, Verdict::kSameBytes);
  const Move back = moved(there.made, {kFormatId<AwqGemv>, 64});
  EXPECT_TRUE(std::ranges::equal(back.made.plane(0), source.plane(0)));
  EXPECT_TRUE(std::ranges::equal(back.made.plane(1), std::span<const std::byte>(clean_zeros)));
  EXPECT_TRUE(std::ranges::equal(back.made.plane(2), std::span<const std::byte>(clean_scales)));
}

// D57: scaled zeros become biases as they are, in binary16.
TEST(WordMoves, D57_ScaledZerosAreBiases) {
  ThreadPool pool(1);
  for (const FormatId from : {kFormatId<AwqGemvFast>, kFormatId<LlmAwq>}) {
    std::mt19937_64 random(kSeed);
    const PackedWeight source = weight_of(
        from, {64, 256}, {64},
        [&](std::int64_t, std::int64_t) { return static_cast<std::uint32_t>(random()) % 16; },
        [&](std::int64_t, std::int64_t) {
          return GroupValues{half_to_float(static_cast<std::uint16_t>(0x2000 + random() % 4096)),
                             half_to_float(static_cast<std::uint16_t>(0xA000 + random() % 4096)),
                             0};
        });
    const Move there = moved(source, {kFormatId<MlxAffine<4>>});
    EXPECT_EQ(there.plan.params.metadata, FloatType::kF16);
    EXPECT_TRUE(compare_values(source, {}, there.made, {}, pool).same_bits);
    const Move back = moved(there.made, {from, 64});
    EXPECT_TRUE(same_planes(source, back.made));
    // Offsets between two codes have no zero point.
    EXPECT_NE(refused(source, {kFormatId<GptqV2<4>>}).reason.find("zero between two codes"),
              std::string::npos);
  }
  there_and_back(random_words(kFormatId<AwqGemvFast>, kShape, {128}, 0, 0), kFormatId<LlmAwq>);
}

// D58: a whole row of QQQ is a linear weight; where its scale is a binary16 number every symmetric
// layout takes it.
TEST(WordMoves, D58_QqqWholeRow) {
  const PackedWeight source = weight_of(
      kFormatId<Qqq>, kShape, {256},
      [](std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>(n * 3 + k) % 16; },
      [](std::int64_t n, std::int64_t) {
        return GroupValues{0.03125f * static_cast<float>(n + 1), kNoOffset, 8};
      });
  for (const FormatId to : {kFormatId<Gptq<4>>, kFormatId<Marlin<4>>, kFormatId<Bitblas<4>>,
                            kFormatId<AwqGemm<4>>, kFormatId<MlxAffine<4>>, kFormatId<GgufQ4_0>})
    there_and_back(source, to);
}

// D59: groups of 128 keep their nibbles; no layout of other codes takes them, floats do where they
// hold every value.
TEST(WordMoves, D59_QqqGroupsKeepNibbles) {
  OwnedWeight owned = OwnedWeight::allocate(kFormatId<QqqG128>, kShape, {}).value();
  std::vector<std::uint32_t> codes(256);
  std::iota(codes.begin(), codes.end(), 0);
  for (std::uint32_t& code : codes) code %= 16;
  const std::vector<RawParams> raw(2, {{std::bit_cast<std::uint32_t>(0.01f), 0x4580}});
  for (std::int64_t row = 0; row < kShape.rows; ++row)
    pack_row(kFormatId<QqqG128>, kShape, {}, owned.pointers().data(), row, codes, raw);
  const PackedWeight source = std::move(owned).release("t").value();
  const std::vector<float> values = decoded(source);
  EXPECT_EQ(values[0], -44.0f * 0.01f);
  EXPECT_EQ(values[3], -28.0f * 0.01f);
  EXPECT_EQ(values[15], 38.0f * 0.01f);
  moved(source, {kFloat32});
  for (const FormatId to : {kFormatId<MlxAffine<8>>, kFormatId<Gptq<4>>, kFormatId<Qqq>})
    EXPECT_FALSE(refused(source, {to}).reason.empty());
}

// ACT-03: act-order moves between GPTQ layouts as data and is refused where there is no place for
// it; nothing is reordered.
TEST(WordMoves, Act03ActOrderIsDataOrRefused) {
  FormatParams params{64};
  params.act_order = true;
  std::mt19937_64 random(kSeed);
  OwnedWeight owned = planes_of(
      kFormatId<Gptq<4>>, kShape, params,
      [&](std::int64_t, std::int64_t) { return static_cast<std::uint32_t>(random()) % 16; },
      [&](std::int64_t, std::int64_t group) {
        return GroupValues{static_cast<float>(1 << group), kNoOffset,
                           static_cast<std::int32_t>(group)};
      });
  std::vector<std::uint32_t> numbers(256);
  for (std::uint32_t i = 0; i < 256; ++i) numbers[i] = i / 64;
  std::shuffle(numbers.begin(), numbers.end(), random);
  std::memcpy(owned.planes[3].data(), numbers.data(), 1024);
  const PackedWeight source = std::move(owned).release("t").value();
  const Move v2 = moved(source, {kFormatId<GptqV2<4>>});
  EXPECT_EQ(v2.plan.verdict, Verdict::kSameBytes);
  EXPECT_TRUE(v2.made.params().act_order);
  EXPECT_TRUE(std::ranges::equal(v2.made.plane(0), source.plane(0)));
  EXPECT_TRUE(std::ranges::equal(v2.made.plane(3), source.plane(3)));
  for (const FormatId to : {kFormatId<AwqGemm<4>>, kFormatId<GgufQ4_1>, kFormatId<MlxAffine<4>>,
                            kFormatId<MarlinAwq<4>>, kFormatId<BitblasAsym<4>>})
    EXPECT_NE(refused(source, {to}).reason.find("act-order"), std::string::npos);
  moved(source, {kFloat32});
}

// D39: without act-order a stored group number must be the column's; with it, in range.
TEST(WordMoves, D39_GroupNumbersAreChecked) {
  const PackedWeight good = random_of<Gptq<4>>({64}, 8, 8);
  std::vector<std::byte> numbers(good.plane(3).begin(), good.plane(3).end());
  const auto bind = [&](const FormatParams& params) {
    return PackedWeight::bind(kFormatId<Gptq<4>>, kShape, params,
                              {good.plane(0), good.plane(1), good.plane(2), numbers}, nullptr, "t");
  };
  FormatParams act{64};
  act.act_order = true;
  EXPECT_TRUE(bind({64}).has_value());
  EXPECT_TRUE(bind(act).has_value());
  store_le(numbers.data(), std::int32_t{1});
  EXPECT_EQ(bind({64}).error().code, ErrorCode::kCorruptData);
  EXPECT_TRUE(bind(act).has_value());
  for (const std::int32_t bad : {4, -1}) {
    store_le(numbers.data(), bad);
    EXPECT_EQ(bind(act).error().code, ErrorCode::kCorruptData);
  }
}

// GRP-01: a short last group moves with its own parameters.
TEST(WordMoves, Grp01ShortLastGroup) {
  const PackedWeight source = random_words(kFormatId<GptqV2<4>>, {64, 192}, {128}, 0, 15);
  there_and_back(source, kFormatId<Gptq<4>>);
  there_and_back(source, kFormatId<AwqGemm<4>>);
  // MLX has no short groups: half the size fits.
  const Move mlx = moved(source, {kFormatId<MlxAffine<4>>});
  EXPECT_EQ(mlx.made.params().group_cols, 64);
  EXPECT_TRUE(same_planes(source, moved(mlx.made, {kFormatId<GptqV2<4>>, 128}).made));
}

}  // namespace
}  // namespace packstone
