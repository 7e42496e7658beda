// Proves the two cases of MXFP4: layouts, values at every type, and cuts of codes beside whole
// scales: contracts B1, B2, B6, B8, B11 to B17, B21, B33, B53 and B54.
#include "packstone/format/registry.h"
#include "packstone/weight/test_stream.h"
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::bytes_of;
using testing::doubles;
using testing::random_array;
using testing::same_values;
using testing::test_pool;

constexpr double kMagnitudes[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};

// What a code and a scale byte mean, by the definition: at float64 nothing overflows by itself.
double value_of(int code, int scale) {
  if (scale == 255) return std::numeric_limits<double>::quiet_NaN();
  const double value = std::ldexp(kMagnitudes[code & 7], scale - 127);
  const double finite = value >= 0x1p128 ? INFINITY : value;
  return code & 8 ? -finite : finite;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

// All 16 codes twice in each of 256 groups, one for each scale byte.
Weight every_code_and_scale() {
  std::vector<std::byte> codes(256 * 16), scales(256);
  for (std::size_t s = 0; s < 256; ++s) {
    scales[s] = static_cast<std::byte>(s);
    for (std::size_t i = 0; i < 16; ++i)
      codes[16 * s + i] = static_cast<std::byte>((2 * i) % 16 | (2 * i + 1) % 16 << 4);
  }
  return Weight::mxfp4(bytes_of({256, 16}, codes), bytes_of({256, 1}, scales)).value();
}

Weight random_mxfp4(Dims dims, std::mt19937_64& random, int low = 110, int high = 140) {
  Dims codes = dims, scales = dims;
  codes.back() /= 2;
  scales.back() /= 32;
  std::vector<std::byte> bytes(static_cast<std::size_t>(*element_count(scales)));
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(low +
                                  static_cast<int>(random() % static_cast<unsigned>(high - low)));
  return Weight::mxfp4(testing::random_bytes(codes, random), bytes_of(scales, bytes)).value();
}

TEST(TypedWeight, B1_Mxfp4LowNibbleIsTheEvenValue) {
  std::mt19937_64 random(1);
  const ByteArray codes = testing::random_bytes({2, 3, 32}, random);
  const ByteArray scales = testing::random_bytes({2, 3, 2}, random);
  const Weight w = Weight::mxfp4(codes, scales).value();
  EXPECT_EQ(w.shape(), (Dims{2, 3, 64}));
  EXPECT_EQ(w.case_name(), "mxfp4");
  const std::vector<double> values = doubles(dequant(w, ValueType::kF32, test_pool()).value());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int byte = static_cast<int>(codes.bytes[i / 2]);
    EXPECT_TRUE(same(values[i], value_of(i % 2 == 0 ? byte & 15 : byte >> 4,
                                         static_cast<int>(scales.bytes[i / 32]))))
        << i;
  }
}

TEST(TypedWeight, B2_Mxfp4BlocksHoldScaleThenHalves) {
  std::mt19937_64 random(2);
  const ByteArray blocks = testing::random_bytes({2, 3, 34}, random);
  const Weight w = Weight::mxfp4_blocks(blocks).value();
  EXPECT_EQ(w.shape(), (Dims{2, 3, 64}));
  const std::vector<double> values = doubles(dequant(w, ValueType::kF32, test_pool()).value());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t block = i / 32 * 17, j = i % 32;
    const int byte = static_cast<int>(blocks.bytes[block + 1 + j % 16]);
    EXPECT_TRUE(same(
        values[i], value_of(j < 16 ? byte & 15 : byte >> 4, static_cast<int>(blocks.bytes[block]))))
        << i;
  }
}

TEST(TypedWeight, B6_CodesApartAndBlocksAreTheSameWeight) {
  std::mt19937_64 random(6);
  const ByteArray blocks = testing::random_bytes({64, 17 * 8}, random);
  const PackedWeight packed =
      PackedWeight::bind(kFormatId<GgufMxfp4>, {64, 256}, {}, {blocks.bytes}, blocks.owner, "w")
          .value();
  const auto moved = [&](const PackedWeight& from, FormatId to) {
    const TranscodePlan plan = plan_transcode(from, {to}, test_pool());
    EXPECT_EQ(plan.verdict, Verdict::kSameBytes) << plan.reason;
    return transcode(from, plan, {to}, {}, test_pool()).value();
  };
  const PackedWeight apart = moved(packed, kFormatId<Mxfp4>);
  const Weight a = Weight::mxfp4_blocks(blocks).value();
  const Weight b = Weight::mxfp4({{64, 128}, apart.plane(0), apart.owner(), 0},
                                 {{64, 8}, apart.plane(1), apart.owner(), 0})
                       .value();
  for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16, ValueType::kF16})
    EXPECT_EQ(dequant(a, type, test_pool()).value().bytes,
              dequant(b, type, test_pool()).value().bytes);
  EXPECT_TRUE(std::ranges::equal(moved(apart, kFormatId<GgufMxfp4>).plane(0), blocks.bytes));
}

TEST(TypedWeight, B8_Mxfp4RefusesPartsThatDoNotFit) {
  const auto made = [](Dims codes, Dims scales, int device = 0) {
    const auto zero = [](const Dims& dims) {
      const auto count = element_count(dims);
      return bytes_of(dims, std::vector<std::byte>(static_cast<std::size_t>(count.value_or(0))));
    };
    ByteArray scale_part = zero(scales);
    scale_part.device = device;
    return Weight::mxfp4(zero(codes), std::move(scale_part));
  };
  const auto refused = [&](Dims codes, Dims scales, std::string_view part, int device = 0) {
    const auto w = made(std::move(codes), std::move(scales), device);
    return !w && w.error().code == ErrorCode::kInvalidInput &&
           w.error().message.starts_with(fmt::format("weight.mxfp4: {}: ", part));
  };
  EXPECT_TRUE(made({2, 3, 32}, {2, 3, 2}).has_value());
  EXPECT_TRUE(made({0, 16}, {0, 1}).has_value());
  EXPECT_TRUE(refused({2, 15}, {2, 1}, "codes"));
  EXPECT_TRUE(refused({2, 24}, {2, 1}, "codes"));
  EXPECT_TRUE(refused({16}, {1}, "codes"));
  EXPECT_TRUE(refused({}, {}, "codes"));
  EXPECT_TRUE(refused({2, 32}, {2, 1}, "scales"));
  EXPECT_TRUE(refused({2, 32}, {2, 4}, "scales"));
  EXPECT_TRUE(refused({2, 32}, {1, 2}, "scales"));
  EXPECT_TRUE(refused({2, 3, 32}, {6, 2}, "scales"));
  EXPECT_TRUE(refused({2, 3, 32}, {3, 2, 2}, "scales"));
  EXPECT_TRUE(refused({2, 32}, {2, 2}, "scales", 1));  // on another device
}

TEST(TypedWeight, B11_ShapesDoNotTellQ8_0FromMxfp4Blocks) {
  std::mt19937_64 random(11);
  const ByteArray tensor = testing::random_bytes({3, 34 * 2}, random);
  EXPECT_EQ(Weight::q8_0(tensor).value().k(), 64);
  EXPECT_EQ(Weight::mxfp4_blocks(tensor).value().k(), 128);
}

TEST(TypedWeight, B12_EveryCodeAndScaleAtEveryType) {
  const Weight w = every_code_and_scale();
  for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16}) {
    const std::vector<double> values = doubles(dequant(w, type, test_pool()).value());
    ASSERT_EQ(values.size(), 256u * 32);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(same(values[i], value_of(static_cast<int>(i % 16), static_cast<int>(i / 32))))
          << "scale " << i / 32 << " code " << i % 16 << ": " << values[i];
  }
}

TEST(TypedWeight, B13_ScaleByte255MakesAllNaN) {
  for (const ValueType type :
       {ValueType::kF32, ValueType::kF64, ValueType::kBF16, ValueType::kF16}) {
    const std::vector<double> values =
        doubles(dequant(every_code_and_scale(), type, test_pool()).value());
    for (std::size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(values[255 * 32 + i]));
    for (std::size_t i = 0; i < 255 * 32; ++i) EXPECT_FALSE(std::isnan(values[i]));
  }
}

TEST(TypedWeight, B14_SignWithoutMagnitudeIsMinusZero) {
  const std::vector<double> values =
      doubles(dequant(every_code_and_scale(), ValueType::kF32, test_pool()).value());
  for (std::size_t s = 0; s < 255; ++s) {
    EXPECT_TRUE(values[32 * s + 8] == 0 && std::signbit(values[32 * s + 8])) << s;
    EXPECT_TRUE(values[32 * s] == 0 && !std::signbit(values[32 * s])) << s;
  }
}

TEST(TypedWeight, B15_OverflowIsInfiniteAtEveryTypeAndNothingElseIs) {
  for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16}) {
    const std::vector<double> values =
        doubles(dequant(every_code_and_scale(), type, test_pool()).value());
    for (std::size_t s = 0; s < 255; ++s)
      for (std::size_t code = 0; code < 16; ++code) {
        const double magnitude = kMagnitudes[code & 7];
        const bool over = (s == 253 && magnitude >= 4) || (s == 254 && magnitude >= 2);
        EXPECT_EQ(std::isinf(values[32 * s + code]), over) << s << " " << code;
        if (over) continue;
        EXPECT_EQ(std::abs(values[32 * s + code]),
                  std::ldexp(magnitude, static_cast<int>(s) - 127));
      }
  }
}

TEST(TypedWeight, B16_ScaleByte0IsTheLeastPower) {
  const std::vector<double> values =
      doubles(dequant(every_code_and_scale(), ValueType::kF32, test_pool()).value());
  EXPECT_EQ(values[1], 0x1p-128);
  EXPECT_EQ(values[7], 6 * 0x1p-127);
}

TEST(TypedWeight, B17_ZeroBytesOfMxfp4DecodeToPlusZero) {
  const std::vector<std::byte> zero(34);
  for (const Weight& w :
       {Weight::mxfp4_blocks(bytes_of({1, 34}, zero)).value(),
        Weight::mxfp4(bytes_of({1, 32}, std::vector<std::byte>(32)), bytes_of({1, 2}, {{}, {}}))
            .value()})
    for (const double value : doubles(dequant(w, ValueType::kF32, test_pool()).value()))
      EXPECT_TRUE(value == 0 && !std::signbit(value));
}

// The closed list of differences from ggml: code 8 (-0.0 here) and scale byte 255 (NaN here). The
// vectors count both as 0; all else in 4096 random blocks has ggml's bits, and so have all scales
// of Q8_0, Q4_K and Q6_K (B18).
TEST(TypedWeight, B21_NothingElseDiffersFromGgml) {
  constexpr std::size_t kBlocks = 4096;
  const nlohmann::json expected = testing::digests();
  ASSERT_TRUE(expected.is_object());
  std::vector<std::byte> blocks = testing::stream(2, kBlocks * 17);
  for (std::size_t i = 0; i < kBlocks; ++i) blocks[17 * i] = static_cast<std::byte>(i & 255);
  const Weight w = Weight::mxfp4_blocks(bytes_of({kBlocks, 17}, blocks)).value();
  const Array values = dequant(w, ValueType::kF32, test_pool()).value();
  std::int64_t differences = 0;
  const auto pattern = [&](std::size_t i) {
    const std::size_t block = i / 32 * 17, j = i % 32;
    const int byte = static_cast<int>(blocks[block + 1 + j % 16]);
    const int code = j < 16 ? byte & 15 : byte >> 4;
    if (code != 8 && blocks[block] != std::byte{255})
      return testing::pattern_of(values.as<float>()[i]);
    ++differences;
    return 0u;
  };
  EXPECT_EQ(testing::digest_text(kBlocks * 32, pattern), expected["mxfp4"]);
  EXPECT_GT(differences, 8000);
}

TEST(TypedWeight, B33_Float64InputsSeeTheFloat32Values) {
  const Weight w = every_code_and_scale();
  const Array values = dequant(w, ValueType::kF64, test_pool()).value();
  for (const std::size_t code : {2u, 4u, 6u, 7u, 15u}) {
    Array x = zeros(ValueType::kF64, {32});
    x.as<double>()[code] = 0x1p-20;
    const std::vector<double> y = doubles(apply(w, x.view(), test_pool()).value());
    for (std::size_t s = 0; s < 253; ++s)
      EXPECT_EQ(y[s], values.as<double>()[32 * s + code] * 0x1p-20) << s;
  }
  // At float64 6 * 2^127 is finite; as a value of the weight it is infinite.
  std::vector<std::byte> codes(16);
  codes[0] = std::byte{7};
  const Weight one =
      Weight::mxfp4(bytes_of({1, 16}, codes), bytes_of({1, 1}, {std::byte{254}})).value();
  Array x = zeros(ValueType::kF64, {32});
  x.as<double>()[0] = 0x1p-100;
  EXPECT_EQ(doubles(apply(one, x.view(), test_pool()).value())[0], INFINITY);
}

TEST(TypedWeight, B43_TakeOfMxfp4KeepsItsCase) {
  std::mt19937_64 random(43);
  const Weight w = random_mxfp4({2, 5, 64}, random);
  const std::vector<std::int64_t> rows = {4, 0, -1};
  const Weight taken = take(w, -2, rows).value();
  const Mxfp4Parts parts = std::get<Mxfp4Parts>(taken.parts());
  EXPECT_EQ(parts.codes.dims, (Dims{2, 3, 32}));
  EXPECT_EQ(parts.scales.dims, (Dims{2, 3, 2}));
  const std::vector<double> all = doubles(dequant(w, ValueType::kF32, test_pool()).value());
  const std::vector<double> some = doubles(dequant(taken, ValueType::kF32, test_pool()).value());
  for (std::size_t m = 0; m < 2; ++m)
    for (std::size_t c = 0; c < 64; ++c) {
      EXPECT_EQ(some[(m * 3 + 0) * 64 + c], all[(m * 5 + 4) * 64 + c]);
      EXPECT_TRUE(same(some[(m * 3 + 2) * 64 + c], 0.0)) << "zero bytes are +0 in MXFP4";
    }
}

TEST(TypedWeight, B46_WalkOfMxfp4VisitsCodesThenScales) {
  std::mt19937_64 random(46);
  const Weight w = random_mxfp4({6, 64}, random);
  std::vector<std::string> seen;
  const auto walked = [&](Dims scales, int device) {
    return walk(w,
                [&](std::string_view name, std::string_view part,
                    const ByteArray& bytes) -> Result<ByteArray> {
                  seen.push_back(fmt::format("{}.{}", name, part));
                  ByteArray changed = bytes;
                  if (part == "scales") changed.dims = scales;
                  if (part == "scales") changed.device = device;
                  return changed;
                });
  };
  EXPECT_TRUE(walked({6, 2}, 0).has_value());
  EXPECT_EQ(seen, (std::vector<std::string>{"mxfp4.codes", "mxfp4.scales"}));
  for (const auto& [dims, device] : {std::pair{Dims{3, 4}, 0}, std::pair{Dims{6, 2}, 1}}) {
    const auto broken = walked(dims, device);
    ASSERT_FALSE(broken.has_value());
    EXPECT_TRUE(broken.error().message.starts_with("weight.walk: scales: "))
        << broken.error().message;
  }
}

TEST(TypedWeight, B53_CodesCutWithoutTheirScalesAreRefused) {
  std::mt19937_64 random(53);
  const Weight w = random_mxfp4({8, 128}, random);
  const auto placed = [&](Placement codes, Placement scales) {
    const PartPlacement parts[] = {{"codes", codes}, {"scales", scales}};
    return place_parts(w, parts);
  };
  for (const auto& [codes, scales] : {std::pair{Placement::cut(2, 1), Placement::cut(2, 0)},
                                      std::pair{Placement::cut(2, 0), Placement::whole(2)},
                                      std::pair{Placement::cut(2, 1), Placement::cut(4, 1)},
                                      std::pair{Placement::cut(2, 1), Placement::whole(4)}}) {
    const auto made = placed(codes, scales);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidInput);
    EXPECT_TRUE(made.error().message.starts_with("weight.place: scales: ")) << made.error().message;
  }
  EXPECT_TRUE(placed(Placement::cut(4, 1), Placement::cut(4, 1)).has_value());
  EXPECT_FALSE(placed(Placement::cut(3, 1), Placement::cut(3, 1)).has_value());
  const PartPlacement one[] = {{"codes", Placement::cut(2, 1)}};
  EXPECT_FALSE(place_parts(w, one).has_value());
}

TEST(TypedWeight, B54_CodesMayBeCutInsideBlocksBesideWholeScales) {
  std::mt19937_64 random(54);
  const Weight w = random_mxfp4({3, 5, 96}, random);
  const Array values = dequant(w, ValueType::kF32, test_pool()).value();
  const Array wide = dequant(w, ValueType::kF64, test_pool()).value();
  for (const int devices : {2, 3, 4, 6, 16, 48}) {
    const PartPlacement parts[] = {{"codes", Placement::cut(devices, 2)},
                                   {"scales", Placement::whole(devices)}};
    const Weight placed = place_parts(w, parts).value();
    const PlacedArray cut = dequant_placed(placed, ValueType::kF32, test_pool()).value();
    EXPECT_EQ(cut.shards[1].dims, (Dims{3, 5, 96 / devices}));
    EXPECT_TRUE(same_values(cut.whole().value(), values)) << devices;
    for (const ValueType type : {ValueType::kF32, ValueType::kF64}) {
      const Array x = random_array({2, 96}, type, random);
      const PlacedArray y = apply_placed(placed, x.view(), test_pool(), {.sum = true}).value();
      EXPECT_EQ(y.shards.size(), static_cast<std::size_t>(devices));
      const Array whole = y.whole().value();
      for (std::size_t m = 0; m < 3; ++m) {
        Array rows{ValueType::kF64, {5, 96}, {}}, result{type, {2, 5}, {}};
        rows.bytes.assign(wide.bytes.begin() + static_cast<std::ptrdiff_t>(m * 5 * 96 * 8),
                          wide.bytes.begin() + static_cast<std::ptrdiff_t>((m + 1) * 5 * 96 * 8));
        const std::size_t size = 10 * value_bytes(type);
        result.bytes.assign(whole.bytes.begin() + static_cast<std::ptrdiff_t>(m * size),
                            whole.bytes.begin() + static_cast<std::ptrdiff_t>((m + 1) * size));
        EXPECT_TRUE(testing::holds_bound(rows, x, result, type == ValueType::kF64)) << devices;
      }
    }
  }
  for (const int devices : {5, 32, 96}) {
    const PartPlacement parts[] = {{"codes", Placement::cut(devices, 2)},
                                   {"scales", Placement::whole(devices)}};
    const auto placed = place_parts(w, parts);
    ASSERT_FALSE(placed.has_value()) << devices;
    EXPECT_TRUE(placed.error().message.starts_with("weight.place: codes: "));
  }
}

TEST(TypedWeight, B54_AWeightOfOneBlockIsCutSoToo) {
  std::mt19937_64 random(55);
  const Weight w = random_mxfp4({4, 32}, random);
  for (const int devices : {2, 4, 16}) {
    const PartPlacement parts[] = {{"codes", Placement::cut(devices, 1)},
                                   {"scales", Placement::whole(devices)}};
    const Weight placed = place_parts(w, parts).value();
    for (const ValueType type :
         {ValueType::kF32, ValueType::kF64, ValueType::kBF16, ValueType::kF16}) {
      const PlacedArray cut = dequant_placed(placed, type, test_pool()).value();
      EXPECT_EQ(cut.placement, Placement::cut(devices, 1));
      EXPECT_TRUE(same_values(cut.whole().value(), dequant(w, type, test_pool()).value()));
    }
  }
  // A group that is NaN stays so on every device, and reaches nothing else.
  const Weight nan = random_mxfp4({4, 32}, random, 255, 256);
  const PartPlacement parts[] = {{"codes", Placement::cut(4, 1)}, {"scales", Placement::whole(4)}};
  const Array x = random_array({32}, ValueType::kF32, random);
  for (const double value :
       doubles(apply(place_parts(nan, parts).value(), x.view(), test_pool()).value()))
    EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace packstone
