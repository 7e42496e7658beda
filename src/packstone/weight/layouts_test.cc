// Proves what the constructors of the typed weight accept, and that they read shapes alone:
// contracts B1 to B11.
#include <sys/mman.h>

#include "packstone/format/registry.h"
#include "packstone/transcode/unpack.h"
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::bytes_of;
using testing::doubles;
using testing::random_bytes;
using testing::test_pool;

double half_at(const ByteArray& part, std::size_t at) {
  return half_to_float(load_le<std::uint16_t>(part.bytes.data() + at));
}
int byte_at(const ByteArray& part, std::size_t at) {
  return static_cast<int>(part.bytes[at]);
}
int signed_at(const ByteArray& part, std::size_t at) {
  return static_cast<std::int8_t>(part.bytes[at]);
}

// A block's bytes with a small finite binary16 at each of `fields`.
ByteArray tame_bytes(Dims dims, std::size_t block, std::initializer_list<std::size_t> fields,
                     std::mt19937_64& random) {
  ByteArray part = random_bytes(std::move(dims), random);
  std::vector<std::byte> bytes(part.bytes.begin(), part.bytes.end());
  for (std::size_t at = 0; at < bytes.size(); at += block)
    for (const std::size_t field : fields)
      store_le(bytes.data() + at + field,
               static_cast<std::uint16_t>(0x2000u + (random() & 0x9FFFu)));
  return bytes_of(part.dims, std::move(bytes));
}

TEST(TypedWeight, B3_Q8_0BlockIsScaleThen32SignedBytes) {
  std::mt19937_64 random(3);
  const ByteArray part = tame_bytes({2, 3, 68}, 34, {0}, random);
  const Weight w = Weight::q8_0(part).value();
  EXPECT_EQ(w.shape(), (Dims{2, 3, 64}));
  const std::vector<double> values = doubles(dequant(w, ValueType::kF64, test_pool()).value());
  ASSERT_EQ(values.size(), 2u * 3 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t block = i / 32 * 34;
    EXPECT_EQ(values[i], half_at(part, block) * signed_at(part, block + 2 + i % 32)) << i;
  }
}

TEST(TypedWeight, B4_Q4_KBlockIsTwoScales12BytesThen128Nibbles) {
  std::mt19937_64 random(4);
  const ByteArray part = tame_bytes({3, 288}, 144, {0, 2}, random);
  const Weight w = Weight::q4_k(part).value();
  EXPECT_EQ(w.shape(), (Dims{3, 512}));
  const Array values = dequant(w, ValueType::kF32, test_pool()).value();
  for (std::size_t i = 0; i < values.as<float>().size(); ++i) {
    const std::size_t block = i / 256 * 144, j = i % 256, sub = j / 32;
    const auto six = [&](std::size_t s, bool min) {
      const std::size_t at = block + 4 + (min ? 4 : 0);
      if (s < 4) return byte_at(part, at + s) & 63;
      const int low = byte_at(part, block + 12 + (s - 4));
      return (min ? low >> 4 : low & 15) | (byte_at(part, at + s - 4) >> 6) << 4;
    };
    const int nibbles = byte_at(part, block + 16 + 32 * (sub / 2) + j % 32);
    const float d = static_cast<float>(half_at(part, block));
    const float dmin = static_cast<float>(half_at(part, block + 2));
    const float scale = d * static_cast<float>(six(sub, false));
    const float product = scale * static_cast<float>(sub % 2 == 0 ? nibbles & 15 : nibbles >> 4);
    EXPECT_EQ(values.as<float>()[i], product - dmin * static_cast<float>(six(sub, true))) << i;
  }
}

TEST(TypedWeight, B5_Q6_KBlockHasItsScaleLast) {
  std::mt19937_64 random(5);
  const ByteArray part = tame_bytes({2, 420}, 210, {208}, random);
  const Weight w = Weight::q6_k(part).value();
  EXPECT_EQ(w.shape(), (Dims{2, 512}));
  const std::vector<double> values = doubles(dequant(w, ValueType::kF64, test_pool()).value());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t block = i / 256 * 210, j = i % 256, half = j / 128, s = j % 128 / 32,
                      l = j % 32;
    const int low = byte_at(part, block + 64 * half + 32 * (s % 2) + l) >> (4 * (s / 2)) & 15;
    const int high = byte_at(part, block + 128 + 32 * half + l) >> (2 * s) & 3;
    const double scale = half_at(part, block + 208) * signed_at(part, block + 192 + j / 16);
    EXPECT_EQ(values[i], scale * ((low | high << 4) - 32)) << i;
  }
}

// Bytes that nobody may read.
std::shared_ptr<const void> forbidden(std::size_t size) {
  void* memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [size](const void* address) { munmap(const_cast<void*>(address), size); }};
}

TEST(TypedWeight, B7_ConstructorsReadNoByteAndKeepThePointer) {
  constexpr std::size_t kBytes = 17 * 34 * 144 * 210;
  const auto owner = forbidden(kBytes);
  ASSERT_NE(owner, nullptr);
  const auto* data = static_cast<const std::byte*>(owner.get());
  const auto part = [&](std::int64_t row) {
    return ByteArray{{static_cast<std::int64_t>(kBytes) / row, row}, {data, kBytes}, owner, 0};
  };
  const Weight blocks = Weight::mxfp4_blocks(part(17)).value();
  const Weight mxfp4 = Weight::mxfp4({{16, 3, 32}, {data, 16 * 96}, owner, 0},
                                     {{16, 3, 2}, {data + 99, 96}, owner, 0})
                           .value();
  EXPECT_EQ(std::get<Mxfp4BlocksParts>(blocks.parts()).blocks.bytes.data(), data);
  EXPECT_EQ(std::get<Mxfp4Parts>(mxfp4.parts()).codes.bytes.data(), data);
  EXPECT_EQ(std::get<Mxfp4Parts>(mxfp4.parts()).scales.bytes.data(), data + 99);
  const Weight q8_0 = Weight::q8_0(part(34)).value();
  const Weight q4_k = Weight::q4_k(part(144)).value();
  const Weight q6_k = Weight::q6_k(part(210)).value();
  EXPECT_EQ(std::get<Q8_0Parts>(q8_0.parts()).blocks.bytes.data(), data);
  EXPECT_EQ(std::get<Q4_KParts>(q4_k.parts()).blocks.bytes.data(), data);
  EXPECT_EQ(std::get<Q6_KParts>(q6_k.parts()).blocks.bytes.data(), data);
  // Every other layout, from planes in the same mapping.
  for (const testing::FormatCase& one : testing::all_formats()) {
    if (format_info(one.id).index_plane >= 0) continue;  // bind checks the group numbers
    std::vector<ByteSpan> planes;
    for (int plane = 0; plane < format_info(one.id).plane_count; ++plane)
      planes.push_back({data, plane_bytes(one.id, plane, one.shape, one.params)});
    ASSERT_LE(weight_bytes(one.id, one.shape, one.params), kBytes);
    const Weight w =
        Weight::from(
            PackedWeight::bind(one.id, one.shape, one.params, planes, owner, "planes").value())
            .value();
    const WeightParts parts = w.parts();
    ASSERT_TRUE(std::holds_alternative<PlaneParts>(parts));
    EXPECT_EQ(std::get<PlaneParts>(parts).planes[0].bytes.bytes.data(), data)
        << testing::text_of(one);
  }
}

TEST(TypedWeight, B9_ConstructorsRefuseRowsThatAreNotWholeBlocks) {
  struct Case {
    Result<Weight> (*make)(ByteArray);
    std::int64_t block;
    const char* name;
  };
  for (const Case& one : {Case{Weight::mxfp4_blocks, 17, "weight.mxfp4_blocks: blocks: "},
                          Case{Weight::q8_0, 34, "weight.q8_0: blocks: "},
                          Case{Weight::q4_k, 144, "weight.q4_k: blocks: "},
                          Case{Weight::q6_k, 210, "weight.q6_k: blocks: "}}) {
    const auto refused = [&](Dims dims, std::size_t size) {
      const auto made = one.make(bytes_of(std::move(dims), std::vector<std::byte>(size)));
      return !made && made.error().code == ErrorCode::kInvalidInput &&
             made.error().message.starts_with(one.name);
    };
    const auto block = static_cast<std::size_t>(one.block);
    EXPECT_TRUE(refused({2, one.block + 1}, 2 * (block + 1)));
    EXPECT_TRUE(refused({2, one.block - 1}, 2 * (block - 1)));
    EXPECT_TRUE(refused({}, 1));               // rank 0
    EXPECT_TRUE(refused({one.block}, block));  // rank 1
    EXPECT_TRUE(refused({-1, one.block}, 0));
    EXPECT_TRUE(refused({2, one.block}, block));  // half of the bytes
    EXPECT_TRUE(refused({std::int64_t{1} << 40, std::int64_t{1} << 40, one.block}, 0));
    EXPECT_TRUE(refused({1, 1, 1, 1, 1, 1, 1, 1, one.block}, block));
    EXPECT_TRUE(one.make(bytes_of({0, one.block}, {})).has_value());
    EXPECT_TRUE(one.make(bytes_of({3, 0}, {})).has_value());
  }
}

TEST(TypedWeight, B10_WeightsAreMadeByConstructorsAndPartsAreReadOnly) {
  static_assert(!std::is_default_constructible_v<Weight>);
  static_assert(!std::is_constructible_v<Weight, PackedWeight>);
  static_assert(!std::is_constructible_v<Weight, std::shared_ptr<const WeightState>>);
  static_assert(std::is_same_v<decltype(std::declval<ByteArray>().bytes), ByteSpan>);
  static_assert(std::is_const_v<std::remove_reference_t<decltype(std::declval<Weight>().shape())>>);
  std::mt19937_64 random(10);
  const Weight w = Weight::q4_k(random_bytes({2, 3, 144}, random)).value();
  EXPECT_EQ(w.shape(), (Dims{2, 3, 256}));
  EXPECT_EQ(w.case_name(), "q4_k");
  // What a caller does to its copy of the parts does not reach the weight.
  WeightParts parts = w.parts();
  ASSERT_TRUE(std::holds_alternative<Q4_KParts>(parts));
  std::get<Q4_KParts>(parts).blocks = {};
  EXPECT_EQ(std::get<Q4_KParts>(w.parts()).blocks.dims, (Dims{2, 3, 144}));
  EXPECT_FALSE(Weight::from(testing::random_weight(kFormatId<GgufQ4_0>, {6, 32}, {}, random),
                            std::vector<std::int64_t>{4})
                   .has_value());
}

}  // namespace
}  // namespace packstone
