// Proves what may be cut how over devices, and that no value depends on it: contracts B47 to B57.
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::doubles;
using testing::q8_0_of;
using testing::random_array;
using testing::same_values;
using testing::test_pool;

Weight stacked(FormatId id, Dims dims, std::mt19937_64& random) {
  const auto leading = std::span(dims).first(dims.size() - 2);
  const Shape shape{*element_count(leading) * dims[dims.size() - 2], dims.back()};
  return Weight::from(testing::random_weight(id, shape, {}, random), leading).value();
}

TEST(TypedWeight, B47_EveryLayoutKeepsItsValuesWhereverItIsPlaced) {
  std::mt19937_64 random(47);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random, true);
    const Array expected = dequant(w, ValueType::kF32, test_pool()).value();
    EXPECT_TRUE(same_values(
        dequant(place(w, Placement::whole(3)).value(), ValueType::kF32, test_pool()).value(),
        expected));
    for (const int axis : {0, 1}) {
      const auto placed = place(w, Placement::cut(2, axis));
      if (!placed) {
        // A layout that cannot be cut so says so before anything moves.
        EXPECT_TRUE(placed.error().message.starts_with("weight.place: ")) << placed.error().message;
        continue;
      }
      EXPECT_EQ(placed->shape(), w.shape());
      EXPECT_TRUE(same_values(dequant(*placed, ValueType::kF32, test_pool()).value(), expected))
          << testing::text_of(one) << " axis " << axis;
    }
  }
}

TEST(TypedWeight, B47_ACutWeightIsPlacedAnewWithTheSameBytes) {
  std::mt19937_64 random(47);
  const Weight w = q8_0_of({4, 6, 128}, random);
  const ByteSpan bytes = std::get<Q8_0Parts>(w.parts()).blocks.bytes;
  for (int axis = 0; axis < 3; ++axis) {
    const Weight placed = place(w, Placement::cut(2, axis)).value();
    const Weight whole = place(placed, Placement::whole(1)).value();
    EXPECT_TRUE(std::ranges::equal(std::get<Q8_0Parts>(whole.parts()).blocks.bytes, bytes)) << axis;
    for (int other = 0; other < 3; ++other) {
      const Weight again = place(placed, Placement::cut(2, other)).value();
      EXPECT_TRUE(same_values(dequant(again, ValueType::kF32, test_pool()).value(),
                              dequant(w, ValueType::kF32, test_pool()).value()));
    }
  }
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight of = testing::weight_of(one, random, true);
    const auto placed = place(of, Placement::cut(2, 1));
    if (!placed) continue;
    const auto whole = place(*placed, Placement::whole(1));
    if (!whole) {
      EXPECT_EQ(whole.error().code, ErrorCode::kUnsupported) << testing::text_of(one);
      continue;
    }
    EXPECT_TRUE(same_values(dequant(*whole, ValueType::kF32, test_pool()).value(),
                            dequant(of, ValueType::kF32, test_pool()).value()))
        << testing::text_of(one);
  }
}

TEST(TypedWeight, B47_EveryDeviceOwnsItsPart) {
  std::mt19937_64 random(47);
  const Weight w = q8_0_of({6, 128}, random);
  const Weight placed = place(w, Placement::cut(3, 0)).value();
  for (int d = 0; d < 3; ++d) {
    const ByteArray blocks = std::get<Q8_0Parts>(placed.parts(d)).blocks;
    EXPECT_EQ(blocks.dims, (Dims{2, 136}));
    EXPECT_EQ(blocks.device, d);
    EXPECT_NE(blocks.owner, std::get<Q8_0Parts>(w.parts()).blocks.owner);
    EXPECT_EQ(placed.bytes(d), w.bytes() / 3);
  }
}

TEST(TypedWeight, B48_EveryPlacementHoldsTheBoundAndRepeats) {
  std::mt19937_64 random(48);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random);
    const Array values = dequant(w, ValueType::kF64, test_pool()).value();
    for (const int axis : {0, 1}) {
      const auto placed = place(w, Placement::cut(2, axis));
      if (!placed) continue;
      for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16}) {
        const Array x = random_array({3, one.shape.cols}, type, random);
        const Array y = apply(*placed, x.view(), test_pool()).value();
        EXPECT_TRUE(testing::holds_bound(values, x, y, type == ValueType::kF64))
            << testing::text_of(one) << " axis " << axis;
        ThreadPool one_thread(1);
        EXPECT_TRUE(same_values(apply(*placed, x.view(), one_thread).value(), y));
      }
    }
  }
}

TEST(TypedWeight, B49_CutAlongOutputsOrALeadingAxisHasTheBitsOfTheWhole) {
  std::mt19937_64 random(49);
  const Weight w = q8_0_of({4, 7, 128}, random);
  for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kF16})
    for (const Dims& dims :
         {Dims{128}, Dims{3, 128}, Dims{4, 3, 128}, Dims{2, 4, 3, 128}, Dims{2, 1, 3, 128}}) {
      const Array x = random_array(dims, type, random);
      const Array expected = apply(w, x.view(), test_pool()).value();
      for (const int axis : {0, 1})
        for (const int devices : {2, 3, 4, 9}) {
          const Weight placed = place(w, Placement::cut(devices, axis)).value();
          const PlacedArray y = apply_placed(placed, x.view(), test_pool()).value();
          EXPECT_EQ(y.placement.devices, devices);
          EXPECT_FALSE(y.terms);
          const int rank = static_cast<int>(expected.dims.size());
          const int vector = dims.size() == 1 ? 1 : 0;
          EXPECT_EQ(y.placement.axis, axis == 1 ? rank - 1 : rank - 3 + vector);
          EXPECT_TRUE(same_values(y.whole().value(), expected))
              << dims_text(dims) << " axis " << axis << " over " << devices;
        }
    }
}

TEST(TypedWeight, B49_OneMatrixCutOverDevicesServesEveryBatch) {
  std::mt19937_64 random(49);
  const Weight w = q8_0_of({1, 7, 128}, random);
  const Array x = random_array({5, 2, 128}, ValueType::kF32, random);
  const Weight placed = place(w, Placement::cut(3, 0)).value();
  EXPECT_TRUE(same_values(apply(placed, x.view(), test_pool()).value(),
                          apply(w, x.view(), test_pool()).value()));
}

const std::vector<std::int64_t> kIds = {0, 4, 2, -1, 1, 3, 4, 5, 0, 2};

TEST(TypedWeight, B50_CutAlongExpertsHasTheBitsOfTheWhole) {
  std::mt19937_64 random(50);
  const Weight w = q8_0_of({5, 7, 128}, random);
  for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16}) {
    const Array x = random_array({10, 128}, type, random);
    const IdsView ids{{10}, kIds};
    const Array expected = apply_experts(w, ids, x.view(), test_pool()).value();
    for (const int devices : {2, 3, 5, 8}) {
      const Weight placed = place(w, Placement::cut(devices, 0)).value();
      EXPECT_TRUE(same_values(apply_experts(placed, ids, x.view(), test_pool()).value(), expected));
      const PlacedArray kept =
          apply_experts_placed(placed, place_ids(ids, {}).value(),
                               place_array(x.view(), {}).value(), test_pool(), {.sum = true})
              .value();
      EXPECT_TRUE(kept.terms);
      EXPECT_EQ(kept.shards.size(), static_cast<std::size_t>(devices));
      EXPECT_TRUE(same_values(kept.whole().value(), expected)) << devices;
    }
    // Cut along n the result is cut so.
    const Weight placed = place(w, Placement::cut(3, 1)).value();
    EXPECT_TRUE(same_values(apply_experts(placed, ids, x.view(), test_pool()).value(), expected));
  }
}

TEST(TypedWeight, B51_CutAlongInputsSumsPartsInTheOrderOfTheDevices) {
  std::mt19937_64 random(51);
  const Weight w = stacked(kFormatId<GgufQ4_K>, {3, 5, 1024}, random);
  const Array values = dequant(w, ValueType::kF64, test_pool()).value();
  for (const int devices : {2, 4}) {
    const Weight placed = place(w, Placement::cut(devices, 2)).value();
    for (int d = 0; d < devices; ++d) EXPECT_EQ(placed.bytes(d) * devices, w.bytes());
    const PlacedArray parts = dequant_placed(placed, ValueType::kF32, test_pool()).value();
    EXPECT_EQ(parts.placement, Placement::cut(devices, 2));
    EXPECT_EQ(parts.shards[1].dims, (Dims{3, 5, 1024 / devices}));
    EXPECT_TRUE(
        same_values(parts.whole().value(), dequant(w, ValueType::kF32, test_pool()).value()));
    for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kF16}) {
      const Array x = random_array({3, 4, 1024}, type, random);
      const Array y = apply(placed, x.view(), test_pool()).value();
      for (std::int64_t b = 0; b < 3; ++b) {
        const auto part = [&](const Array& a, std::int64_t rows, std::int64_t cols) {
          const std::size_t bytes = static_cast<std::size_t>(rows * cols) * value_bytes(a.type);
          const auto begin = a.bytes.begin() + b * static_cast<std::ptrdiff_t>(bytes);
          return Array{a.type, {rows, cols}, {begin, begin + static_cast<std::ptrdiff_t>(bytes)}};
        };
        EXPECT_TRUE(testing::holds_bound(part(values, 5, 1024), part(x, 4, 1024), part(y, 4, 5),
                                         type == ValueType::kF64));
      }
      const std::vector<std::int64_t> ids = {2, 0, -1, 1, 1, 9};
      const Array rows = random_array({6, 1024}, type, random);
      const Array e = apply_experts(placed, {{6}, ids}, rows.view(), test_pool()).value();
      ThreadPool one(1);
      EXPECT_TRUE(same_values(apply_experts(placed, {{6}, ids}, rows.view(), one).value(), e));
      const std::vector<double> all = doubles(e);
      for (std::size_t r = 0; r < 5; ++r) EXPECT_TRUE(all[2 * 5 + r] == 0 && all[5 * 5 + r] == 0);
    }
  }
}

TEST(TypedWeight, B52_AKeptSumIsReducedLaterToTheSameBits) {
  std::mt19937_64 random(52);
  const Weight w = place(q8_0_of({5, 128}, random), Placement::cut(4, 1)).value();
  for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16}) {
    const Array x = random_array({3, 128}, type, random);
    const PlacedArray kept = apply_placed(w, x.view(), test_pool(), {.sum = true}).value();
    ASSERT_TRUE(kept.terms);
    ASSERT_EQ(kept.shards.size(), 4u);
    EXPECT_EQ(kept.shards[0].type, type == ValueType::kF64 ? ValueType::kF64 : ValueType::kF32);
    EXPECT_TRUE(same_values(kept.whole().value(), apply(w, x.view(), test_pool()).value()));
  }
}

TEST(TypedWeight, B53_ACutThatSplitsABlockIsRefusedWithTheRemedy) {
  std::mt19937_64 random(53);
  const Weight w = q8_0_of({8, 96}, random);
  for (const int devices : {2, 4, 5}) {
    const auto placed = place(w, Placement::cut(devices, 1));
    ASSERT_FALSE(placed.has_value());
    EXPECT_EQ(placed.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(placed.error().message.find("gguf.q8_0"), std::string::npos);
    EXPECT_NE(
        placed.error().message.find(fmt::format("axis 1 of [8, 96] cut over {} devices", devices)),
        std::string::npos);
    EXPECT_NE(placed.error().message.find("keep it whole along k"), std::string::npos);
  }
  EXPECT_TRUE(place(w, Placement::cut(3, 1)).has_value());
}

TEST(TypedWeight, B55_PaddingWithZeroBlocksMakesTheCutLegal) {
  std::mt19937_64 random(55);
  const Weight w = q8_0_of({8, 96}, random);
  const ByteSpan blocks = std::get<Q8_0Parts>(w.parts()).blocks.bytes;
  std::vector<std::byte> padded(8 * 4 * 34);
  for (std::size_t row = 0; row < 8; ++row)
    std::memcpy(padded.data() + row * 136, blocks.data() + row * 102, 102);
  const Weight wide = Weight::q8_0(testing::bytes_of({8, 136}, padded)).value();
  const Weight placed = place(wide, Placement::cut(2, 1)).value();
  const Array x = random_array({3, 96}, ValueType::kF32, random);
  std::vector<float> wide_x(3 * 128);
  for (std::size_t i = 0; i < 3; ++i)
    std::copy_n(x.as<float>().begin() + static_cast<std::ptrdiff_t>(i * 96), 96,
                wide_x.begin() + static_cast<std::ptrdiff_t>(i * 128));
  const Array y = apply(placed, testing::array_of({3, 128}, wide_x).view(), test_pool()).value();
  EXPECT_TRUE(testing::holds_bound(dequant(w, ValueType::kF64, test_pool()).value(), x, y, false));
}

TEST(TypedWeight, B56_PositionsCutTogetherStayOnTheirDevice) {
  std::mt19937_64 random(56);
  const Weight w = place(q8_0_of({5, 7, 128}, random), Placement::whole(2)).value();
  const Array x = random_array({10, 128}, ValueType::kF32, random);
  const IdsView ids{{10}, kIds};
  const Array expected = apply_experts(w, ids, x.view(), test_pool()).value();
  const auto placed_as = [&](Placement placement, std::vector<std::int64_t> ids_ends,
                             std::vector<std::int64_t> x_ends) {
    return apply_experts_placed(w, place_ids(ids, placement, ids_ends).value(),
                                place_array(x.view(), placement, x_ends).value(), test_pool())
        .value();
  };
  const PlacedArray own = placed_as(Placement::cut(2, 0), {}, {});
  EXPECT_EQ(own.placement, Placement::cut(2, 0));
  EXPECT_EQ(own.shards[1].dims, (Dims{5, 7}));
  EXPECT_TRUE(same_values(own.whole().value(), expected));
  // Windows that differ, in themselves or from each other: read whole.
  for (const auto& [ids_ends, x_ends] :
       {std::pair{std::vector<std::int64_t>{0, 3, 10}, std::vector<std::int64_t>{0, 3, 10}},
        std::pair{std::vector<std::int64_t>{0, 5, 10}, std::vector<std::int64_t>{0, 6, 10}}}) {
    const PlacedArray y = placed_as(Placement::cut(2, 0), ids_ends, x_ends);
    EXPECT_EQ(y.placement.axis, Placement::kWhole);
    EXPECT_TRUE(same_values(y.whole().value(), expected));
  }
  // A later axis.
  const Array pairs = random_array({5, 2, 128}, ValueType::kF32, random);
  const IdsView pair_ids{{5, 2}, kIds};
  const PlacedArray later =
      apply_experts_placed(w, place_ids(pair_ids, Placement::cut(2, 1)).value(),
                           place_array(pairs.view(), Placement::cut(2, 1)).value(), test_pool())
          .value();
  EXPECT_TRUE(same_values(later.whole().value(),
                          apply_experts(w, pair_ids, pairs.view(), test_pool()).value()));
}

TEST(TypedWeight, B57_ThePlannerSaysFromTheHeaderWhichCutsAreLegal) {
  // 200 blocks of k: a shape far too large to allocate.
  const Dims dims = {128, 1 << 20, 51200};
  const FormatId q4_k = kFormatId<GgufQ4_K>;
  for (const int devices : {2, 4, 5, 8, 200}) {
    const CutPlan plan = plan_cut(q4_k, {}, dims, Placement::cut(devices, 2)).value();
    EXPECT_EQ(plan.unit, 256);
    EXPECT_EQ(plan.ends[1], 51200 / devices);
  }
  for (const int devices : {3, 16, 400}) {
    const auto plan = plan_cut(q4_k, {}, dims, Placement::cut(devices, 2));
    ASSERT_FALSE(plan.has_value());
    EXPECT_NE(plan.error().message.find("200 blocks of 256 along k"), std::string::npos);
  }
  EXPECT_EQ(plan_cut(q4_k, {}, dims, Placement::cut(3, 0)).value().ends,
            (std::vector<std::int64_t>{0, 43, 86, 128}));
  EXPECT_EQ(plan_cut(q4_k, {}, dims, Placement::cut(3, 1)).value().unit, 1);
  // Groups of 128 and 4 of them: 8 devices would split a group.
  const FormatParams group{128, FloatType::kF16};
  const Dims mlx = {64, 512};
  EXPECT_TRUE(plan_cut(kFormatId<MlxAffine<4>>, group, mlx, Placement::cut(4, 1)).has_value());
  EXPECT_FALSE(plan_cut(kFormatId<MlxAffine<4>>, group, mlx, Placement::cut(8, 1)).has_value());
  for (const Placement& bad : {Placement{0, 0}, Placement{2, 3}, Placement{2, -2}, Placement{-1, 1},
                               Placement{1 << 20, 0}})
    EXPECT_FALSE(plan_cut(q4_k, {}, dims, bad).has_value());
}

}  // namespace
}  // namespace packstone
