// Proves the transcoder's verdicts, refusals in words, row orders and independence of threads. The
// proof over all pairs of formats is pair_test.cc.
#include "packstone/transcode/transcode.h"

#include <random>

#include "packstone/format/registry.h"
#include "packstone/transcode/test_layouts.h"

namespace packstone {
namespace {

using testing::expect_same_reals;
using testing::Layout;
using testing::layouts_at;
using testing::random_weight_of;
using testing::Recipe;
using testing::same_planes;
using testing::show;

constexpr std::uint64_t kSeed = 20260731;
constexpr Shape kShape{3, 256};

PackedWeight random_weight(const Layout& layout, Recipe recipe, std::mt19937_64& random) {
  return random_weight_of(layout, kShape, recipe, random);
}

std::vector<Layout> all_layouts() {
  return layouts_at(kShape);
}

template <class From>
TranscodePlan plan_plain(TranscodeTarget target, FormatParams params = {},
                         Recipe recipe = Recipe::kPlain) {
  std::mt19937_64 random(kSeed);
  ThreadPool pool(2);
  return plan_transcode(random_weight({kFormatId<From>, params}, recipe, random), target, pool);
}

TEST(Transcode, KnownVerdicts) {
  constexpr FormatParams kG32F16{32, FloatType::kF16};
  EXPECT_EQ(plan_plain<GgufQ4_1>({kFormatId<MlxAffine<4>>}).verdict, Verdict::kSameBytes);
  EXPECT_EQ(plan_plain<GgufQ5_1>({kFormatId<MlxAffine<5>>}).verdict, Verdict::kSameBytes);
  EXPECT_EQ(plan_plain<MlxAffine<4>>({kFormatId<GgufQ4_1>}, kG32F16).verdict, Verdict::kSameBytes);
  EXPECT_EQ(plan_plain<GgufQ4_0>({kFormatId<MlxAffine<4>>}).verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(plan_plain<GgufQ8_0>({kFormatId<MlxAffine<8>>}).verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(plan_plain<GgufQ4_0>({kFormatId<GgufQ8_0>}).verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(plan_plain<GgufQ8_0>({kFormatId<GgufQ4_0>}, {}, Recipe::kNarrow).verdict,
            Verdict::kSameBytes);
  const TranscodePlan q4_k = plan_plain<GgufQ4_K>({kFormatId<MlxAffine<4>>});
  EXPECT_EQ(q4_k.verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(q4_k.params, (FormatParams{32, FloatType::kF32}));
  for (FormatId target : {kFormatId<MlxAffine<4>>, kFormatId<MlxAffine<6>>, kFormatId<GgufQ8_0>})
    EXPECT_EQ(plan_plain<GgufQ6_K>({target}).verdict, Verdict::kRefused);
  EXPECT_EQ(plan_plain<GgufQ4_0>({kFormatId<GgufQ4_K>}).verdict, Verdict::kRefused);
  EXPECT_EQ(plan_plain<GgufQ6_K>({kFloat32}).verdict, Verdict::kSameValuesMoreBytes);
  const TranscodePlan dense = plan_plain<DenseF32>({kFormatId<MlxAffine<4>>});
  EXPECT_EQ(dense.reason, "float32 has no codes that mlx.affine.w4 could keep; use quantize");
}

TEST(Transcode, HeaderVerdicts) {
  auto verdict = [](FormatId from, FormatParams params, TranscodeTarget target) {
    return header_verdict(from, kShape, params, target).verdict;
  };
  constexpr FormatId kMlx4 = kFormatId<MlxAffine<4>>;
  EXPECT_EQ(verdict(kFormatId<GgufQ4_1>, {}, {kMlx4}), Verdict::kSameBytes);
  EXPECT_EQ(verdict(kMlx4, {32, FloatType::kF16}, {kFormatId<GgufQ4_1>}), Verdict::kSameBytes);
  const TranscodePlan q4_k = header_verdict(kFormatId<GgufQ4_K>, kShape, {}, {kMlx4});
  EXPECT_EQ(q4_k.verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(q4_k.params, (FormatParams{32, FloatType::kF32}));
  EXPECT_EQ(verdict(kFormatId<GgufQ6_K>, {}, {kMlx4}), Verdict::kRefused);
  EXPECT_EQ(verdict(kFormatId<GgufQ6_K>, {}, {kFormatId<GgufQ6_K>}), Verdict::kSameBytes);
  EXPECT_EQ(verdict(kBFloat16, {}, {kFloat32}), Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(verdict(kFloat32, {}, {kFormatId<GgufQ8_0>}), Verdict::kRefused);
  for (std::int32_t group : {48, 16, 1, -1, std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_EQ(verdict(kFormatId<GgufQ8_0>, {}, {kFormatId<MlxAffine<8>>, group}),
              Verdict::kRefused);
    EXPECT_EQ(verdict(kFormatId<GgufQ8_0>, {}, {kFormatId<GgufQ4_0>, group}), Verdict::kRefused);
    EXPECT_EQ(verdict(kMlx4, {group, FloatType::kF16}, {kFormatId<GgufQ4_1>}), Verdict::kRefused);
  }
  EXPECT_EQ(header_verdict(kMlx4, {1, 64}, {}, {kMlx4}).reason,
            "mlx.affine.w4 of [1, 64], group 0: need a group of 32, 64 or 128 columns");
}

// One group of 32 columns, codes 0, 1, 2, ...
PackedWeight one_group(FormatId id, FormatParams params, RawParams raw, std::uint32_t first = 0) {
  OwnedWeight owned = *OwnedWeight::allocate(id, {1, 32}, params);
  std::vector<std::uint32_t> codes(32);
  for (std::uint32_t i = 0; i < 32; ++i)
    codes[i] = (first + i) & ((1u << format_info(id).code_bits) - 1);
  pack_row(id, {1, 32}, params, owned.pointers().data(), 0, codes, {&raw, 1});
  return *std::move(owned).release("group");
}

RawParams affine(FloatType type, float scale, float offset) {
  RawParams raw;
  raw.pattern[0] = encode_float(type, scale);
  raw.pattern[1] = encode_float(type, offset);
  return raw;
}

// PCK-05: d = 0x3C01 with sub-scale 63 needs 16 bits of precision: float32 metadata or a refusal. A
// group of 16 has no affine home.
TEST(Transcode, Pck05ProductsOfKQuantsKeepFloat32) {
  OwnedWeight owned = *OwnedWeight::allocate(kFormatId<GgufQ4_K>, {1, 256}, {});
  std::vector<std::uint32_t> codes(256);
  for (std::uint32_t i = 0; i < 256; ++i) codes[i] = i % 16;
  const std::vector<RawParams> raw(8, RawParams{{0x3C01, 0x3C01, 63, 1}});
  pack_row(owned.id, owned.shape, {}, owned.pointers().data(), 0, codes, raw);
  const PackedWeight source = *std::move(owned).release("q4_k");
  ThreadPool pool(1);
  const TranscodeTarget free{kFormatId<MlxAffine<4>>};
  const TranscodePlan plan = plan_transcode(source, free, pool);
  EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_EQ(plan.params.metadata, FloatType::kF32);
  expect_same_reals(source, *transcode(source, plan, free, {}, pool));
  const TranscodePlan half =
      plan_transcode(source, {kFormatId<MlxAffine<4>>, 32, FloatType::kF16}, pool);
  EXPECT_EQ(half.verdict, Verdict::kRefused);
  EXPECT_EQ(
      half.reason,
      "row 0, columns [0, 32): scale 63.0615234 (0x427C3F00), offset -1.00097656 (0xBF802000) "
      "do not fit the float16 parameters of mlx.affine.w4; float32 metadata holds them");
}

// PCK-03: unsigned levels with zero point 9 go to a signed layout and back, (q - zero) * scale
// unchanged; zero points 15.5 and NaN are refused.
TEST(Transcode, Pck03ZeroPointsToASignedLayoutAndBack) {
  ThreadPool pool(1);
  constexpr FormatParams kParams{32, FloatType::kF16};
  const PackedWeight source =
      one_group(kFormatId<MlxAffine<4>>, kParams, affine(FloatType::kF16, 0.25f, -9 * 0.25f));
  const TranscodeTarget target{kFormatId<GgufQ8_0>};
  const TranscodePlan plan = plan_transcode(source, target, pool);
  ASSERT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes) << plan.reason;
  const PackedWeight made = *transcode(source, plan, target, {}, pool);
  expect_same_reals(source, made);
  const TranscodeTarget back{kFormatId<MlxAffine<8>>};
  const PackedWeight again = *transcode(made, plan_transcode(made, back, pool), back, {}, pool);
  expect_same_reals(source, again);
  for (float zero : {15.5f, NAN, INFINITY}) {
    const PackedWeight bad =
        one_group(kFormatId<MlxAffine<4>>, kParams, affine(FloatType::kF16, 0.25f, -zero * 0.25f));
    const TranscodePlan refused = plan_transcode(bad, target, pool);
    EXPECT_EQ(refused.verdict, Verdict::kRefused);
    EXPECT_TRUE(
        refused.reason.starts_with("row 0, columns [0, 32): scale 0.25 (0x3E800000), offset "))
        << refused.reason;
  }
}

// SEC-20: blocks with infinite or NaN scales keep their bits or are refused, and are named.
TEST(Transcode, Sec20NonFiniteScalesAreNamed) {
  ThreadPool pool(1);
  for (std::uint32_t d : {0x7C00u, 0xFC00u, 0x7E00u, 0x7C01u}) {
    const PackedWeight source = one_group(kFormatId<GgufQ4_0>, {}, {{d}});
    const TranscodeTarget wide{kFormatId<GgufQ8_0>};
    const TranscodePlan plan = plan_transcode(source, wide, pool);
    ASSERT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes);
    EXPECT_NE(
        std::ranges::find(plan.conditions,
                          "1 groups with a non-finite scale or offset, kept as they are, first at "
                          "row 0, column 0"),
        plan.conditions.end());
    const PackedWeight made = *transcode(source, plan, wide, {}, pool);
    RawParams raw;
    raw_params_row(made, 0, {&raw, 1});
    EXPECT_EQ(raw.pattern[0], d);
    const TranscodePlan affine_plan = plan_transcode(source, {kFormatId<MlxAffine<4>>}, pool);
    if (d == 0x7C00u || d == 0xFC00u) {
      EXPECT_EQ(affine_plan.verdict, Verdict::kRefused);
    }
  }
}

TEST(Transcode, SignOfZeroIsNamed) {
  ThreadPool pool(1);
  const PackedWeight source = one_group(kFormatId<GgufQ4_0>, {}, {{0x8000}});
  const TranscodePlan plan = plan_transcode(source, {kFormatId<MlxAffine<4>>}, pool);
  EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes);
  EXPECT_NE(std::ranges::find_if(plan.conditions,
                                 [](const std::string& text) {
                                   return text.find("zeros change their sign, first at row 0") !=
                                          std::string::npos;
                                 }),
            plan.conditions.end());
}

TEST(Transcode, RefusalsNamePlaceRuleAndWayOut) {
  ThreadPool pool(1);
  const PackedWeight q8 = one_group(kFormatId<GgufQ8_0>, {}, {{0x3C00}}, 100);
  EXPECT_EQ(
      plan_transcode(q8, {kFormatId<GgufQ4_0>}, pool).reason,
      "row 0, columns [0, 32): codes 100 to 131 of gguf.q8_0 do not fit the 4 bits of gguf.q4_0; "
      "use a wider layout");
  EXPECT_EQ(plan_transcode(q8, {kFormatId<MlxAffine<8>>, 64}, pool).reason,
            "mlx.affine.w8 of [1, 32], group 64: need cols a multiple of the group");
  const PackedWeight f32 = *PackedWeight::bind(
      kFloat32, {1, 1}, {}, {std::as_bytes(std::span("\x01\x00\x80\x3F", 4))}, nullptr, "t");
  EXPECT_EQ(
      plan_transcode(f32, {kFloat16}, pool).reason,
      "row 0, column 0: value 1.00000012 (0x3F800001) is not a float16 number; float32 holds it");
}

TEST(Transcode, ThreadCountDoesNotShow) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed + 5);
  ThreadPool one(1), many(5);
  for (FormatId id : {kFormatId<GgufQ4_0>, kFormatId<GgufQ4_K>, kFormatId<GgufQ6_K>})
    for (Recipe recipe : {Recipe::kPlain, Recipe::kAdversarial}) {
      const PackedWeight source = random_weight({id, {}}, recipe, random);
      for (FormatId to : {kFormatId<MlxAffine<4>>, kFloat32, kFloat16}) {
        const TranscodePlan a = plan_transcode(source, {to}, one);
        const TranscodePlan b = plan_transcode(source, {to}, many);
        EXPECT_EQ(a.verdict, b.verdict);
        EXPECT_EQ(a.params, b.params);
        EXPECT_EQ(a.conditions, b.conditions);
        EXPECT_EQ(a.reason, b.reason);
        if (a.verdict == Verdict::kRefused) continue;
        EXPECT_TRUE(same_planes(*transcode(source, a, {to}, {}, one),
                                *transcode(source, b, {to}, {}, many)));
      }
    }
}

TEST(Transcode, RowOrderMovesRowsOnly) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed + 6);
  ThreadPool pool(2);
  const std::vector<std::int32_t> order{2, 0, 1}, inverse{1, 2, 0};
  for (const Layout& layout : all_layouts()) {
    const PackedWeight source = random_weight(layout, Recipe::kAdversarial, random);
    const auto result = permute_rows(source, order, pool);
    if (!result) {  // a row would leave those that it shares parameters with
      EXPECT_TRUE(source.format().shares_rows) << show(layout);
      EXPECT_EQ(result.error().code, ErrorCode::kNotRepresentable);
      continue;
    }
    const PackedWeight moved = *result;
    EXPECT_TRUE(same_planes(*permute_rows(moved, inverse, pool), source)) << show(layout);
    EXPECT_TRUE(compare_values(moved, {}, source, order, pool).same_bits) << show(layout);
    EXPECT_TRUE(compare_values(moved, inverse, source, {}, pool).same_bits) << show(layout);
  }
  const PackedWeight source = random_weight({kFormatId<GgufQ4_1>, {}}, Recipe::kPlain, random);
  const TranscodeTarget target{kFormatId<MlxAffine<4>>};
  const TranscodePlan plan = plan_transcode(source, target, pool);
  const PackedWeight moved = *transcode(source, plan, target, order, pool);
  EXPECT_TRUE(compare_values(moved, inverse, source, {}, pool).same_bits);
  const std::vector<std::int32_t> bad{0, 1, 3};
  EXPECT_EQ(transcode(source, plan, target, bad, pool).error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(
      permute_rows(source, {bad.data(), 2}, pool).error().message,
      "transcode.permute_rows: row order: got 2 entries or a row out of range, need 3 rows in "
      "[0, 3)");
}

// Bytes of TQ1_0 that no codes give do not come back from another layout, and the verdict says so.
TEST(Transcode, TernaryBytesThatAreNotCanonical) {
  ThreadPool pool(2);
  const Shape shape{3, 512};
  for (const int odd : {-1, 0, 5}) {
    OwnedWeight owned = *OwnedWeight::allocate(kFormatId<GgufTQ1_0>, shape, {});
    auto* bytes = reinterpret_cast<unsigned char*>(owned.planes[0].data());
    for (int block = 0; block < 6; ++block) {
      std::uint8_t codes[256];
      for (int i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>((i * 7 + block) % 3);
      ASSERT_TRUE(GgufTQ1_0::write_block(codes, bytes + 54 * block));
      bytes[54 * block + 53] = 0x3C;
    }
    const auto last_digit = [&](int block) { return bytes + 54 * block + 48; };
    if (odd >= 0) ++*last_digit(odd);
    const PackedWeight source = *std::move(owned).release("ternary");
    const TranscodeTarget to{kFormatId<GgufTQ2_0>};
    const TranscodePlan plan = plan_transcode(source, to, pool);
    EXPECT_EQ(plan.verdict, Verdict::kSameValuesMoreBytes);
    EXPECT_EQ(std::ranges::find(plan.conditions, "the way back gives the source's bytes") !=
                  plan.conditions.end(),
              odd < 0);
    const PackedWeight moved = *transcode(source, plan, to, {}, pool);
    expect_same_reals(source, moved);
    const TranscodeTarget home{kFormatId<GgufTQ1_0>};
    const TranscodePlan back = plan_transcode(moved, home, pool);
    EXPECT_EQ(back.verdict, Verdict::kSameBytes);
    EXPECT_EQ(same_planes(*transcode(moved, back, home, {}, pool), source), odd < 0);
  }
}

// TQ2_0 has a fourth level, TQ1_0 has not.
TEST(Transcode, TernaryHasNoFourthLevel) {
  ThreadPool pool(1);
  OwnedWeight owned = *OwnedWeight::allocate(kFormatId<GgufTQ2_0>, {2, 256}, {});
  owned.planes[0][66 + 7] = std::byte{3};
  const PackedWeight source = *std::move(owned).release("ternary");
  const TranscodePlan plan = plan_transcode(source, {kFormatId<GgufTQ1_0>}, pool);
  EXPECT_EQ(plan.verdict, Verdict::kRefused);
  EXPECT_NE(plan.reason.find("row 1"), std::string::npos) << plan.reason;
}

// A weight with a zero dimension moves like any other.
TEST(Transcode, EmptyWeights) {
  ThreadPool pool(2);
  for (Shape shape : {Shape{0, 256}, Shape{3, 0}, Shape{0, 0}})
    for (const Layout& from : all_layouts()) {
      if (layout_rule(from.id, shape, from.params)) continue;  // a group of all cols
      OwnedWeight owned = *OwnedWeight::allocate(from.id, shape, from.params);
      const PackedWeight source = *std::move(owned).release("empty");
      for (FormatId to : {kFormatId<MlxAffine<4>>, kFormatId<GgufQ8_0>, kFloat16}) {
        const TranscodePlan plan = plan_transcode(source, {to}, pool);
        if (plan.verdict == Verdict::kRefused) continue;
        const auto made = transcode(source, plan, {to}, {}, pool);
        ASSERT_TRUE(made.has_value()) << made.error().message;
        EXPECT_EQ(made->shape(), shape);
        EXPECT_TRUE(compare_values(source, {}, *made, {}, pool).same_values);
      }
      EXPECT_TRUE(permute_rows(source, {}, pool).has_value());
    }
}

TEST(CompareValues, FindsTheLargestDifferenceFirstInRowOrder) {
  auto weight = [](std::vector<float> values) {
    OwnedWeight owned = *OwnedWeight::allocate(kFloat32, {2, 2}, {});
    std::memcpy(owned.planes[0].data(), values.data(), 16);
    return *std::move(owned).release("t");
  };
  ThreadPool pool(2);
  auto compare = [&](std::vector<float> a, std::vector<float> b) {
    return compare_values(weight(std::move(a)), {}, weight(std::move(b)), {}, pool);
  };
  const ValueComparison zero = compare({0.0f, NAN, 1, 2}, {-0.0f, NAN, 1, 2});
  EXPECT_TRUE(zero.same_values);
  EXPECT_FALSE(zero.same_bits);
  const ValueComparison two = compare({1, 2, 3, 4}, {1, 3, 3, 5});
  EXPECT_FALSE(two.same_values);
  EXPECT_EQ(two.max_abs, 1);
  EXPECT_EQ(two.row, 0);
  EXPECT_EQ(two.col, 1);
  const ValueComparison infinite = compare({1, 2, NAN, 4}, {1, 3, 3, 4});
  EXPECT_EQ(infinite.max_abs, INFINITY);
  EXPECT_EQ(infinite.row, 1);
}

TEST(OwnedWeight, RefusesIllegalShapes) {
  EXPECT_EQ(OwnedWeight::allocate(kFormatId<GgufQ4_K>, {2, 100}, {}).error().message,
            "transcode.allocate: gguf.q4_k: got [2, 100], group 0, need cols a multiple of 256");
  EXPECT_FALSE(OwnedWeight::allocate(kFloat32, {std::int64_t{1} << 40, 1 << 20}, {}));
}

}  // namespace
}  // namespace packstone
