// Proves, for every format of the list, that its layout is a bijection on ragged shapes too.
#include "packstone/format/packed_weight.h"
#include "packstone/format/registry.h"
#include "packstone/format/variants.h"

namespace packstone {
namespace {

template <PlacedCodes F>
void prove(Shape shape, FormatParams params) {
  EXPECT_TRUE((proves_bijection<F, 1 << 19>(shape, params)))
      << F::kName << " " << shape.rows << "x" << shape.cols << " group " << params.group_cols;
}

TEST(Format, EveryLayoutIsABijection) {
  for (std::uint16_t id = 0; id < format_count(); ++id)
    visit(FormatId{id}, []<class F>() {
      if constexpr (PlacedCodes<F>) {
        int proven = 0;
        for (const Shape shape : {Shape{1, 1}, Shape{3, 5}, Shape{2, 32}, Shape{3, 64},
                                  Shape{1, 96}, Shape{8, 96}, Shape{3, 256}, Shape{2, 512},
                                  Shape{24, 128}, Shape{64, 32}, Shape{64, 192}, Shape{64, 256}})
          for (const FormatParams& params : legal_variants(kFormatId<F>, shape)) {
            prove<F>(shape, params);
            ++proven;
          }
        EXPECT_GT(proven, 0) << F::kName;
      }
    });
}

TEST(Format, NamesAreUniqueAndFound) {
  for (std::uint16_t id = 0; id < format_count(); ++id)
    EXPECT_EQ(find_format(format_info(FormatId{id}).name), FormatId{id});
  EXPECT_EQ(find_format("gguf.q9_9"), std::nullopt);
  EXPECT_EQ(find_layout("gguf:Q4_K"), kFormatId<GgufQ4_K>);
  EXPECT_EQ(find_layout("mlx-affine", 4), kFormatId<MlxAffine<4>>);
  EXPECT_EQ(find_layout("mlx-affine"), std::nullopt);
  EXPECT_EQ(format_info(kFormatId<MlxAffine<4>>).group_sizes.size(), 3u);
  EXPECT_EQ(format_info(kFormatId<GgufQ2_K>).group_sizes[0], 16);
  EXPECT_TRUE(format_info(kFormatId<GgufQ2_K>).has_offset);
  EXPECT_FALSE(format_info(kFormatId<GgufQ8_0>).has_offset);
}

// A tensor of [2^62, 0] has no bytes, and 2^62 rows of work.
TEST(Format, AnEmptySideDoesNotLiftTheBoundOfTheOther) {
  const std::int64_t most = std::int64_t{1} << 48;
  EXPECT_EQ(layout_rule(kFloat32, {most, 0}, {}), nullptr);
  EXPECT_NE(layout_rule(kFloat32, {most + 1, 0}, {}), nullptr);
  EXPECT_NE(layout_rule(kFloat32, {0, most + 1}, {}), nullptr);
  EXPECT_NE(layout_rule(kFormatId<GgufQ8_0>, {std::int64_t{1} << 62, 0}, {}), nullptr);
  EXPECT_EQ(layout_rule(kFormatId<GgufQ8_0>, {0, 0}, {}), nullptr);
}

TEST(Format, OneSumOfBytesAndOneNamePerFloatType) {
  EXPECT_EQ(weight_bytes(kFormatId<GgufQ4_0>, {2, 64}, {}), 72u);
  EXPECT_EQ(weight_bytes(kFormatId<MlxAffine<4>>, {2, 64}, {32, FloatType::kF32}), 64u + 2 * 16);
  EXPECT_EQ(float_name(FloatType::kF32), "float32");
  EXPECT_EQ(float_name(FloatType::kF16), "float16");
  EXPECT_EQ(float_name(FloatType::kBF16), "bfloat16");
}

TEST(PackedWeight, BindChecksEveryPlane) {
  std::vector<std::byte> bytes(36);
  auto good = PackedWeight::bind(kFormatId<GgufQ4_0>, {1, 64}, {}, {bytes}, nullptr, "f: t");
  EXPECT_TRUE(good.has_value());
  auto bad_shape = PackedWeight::bind(kFormatId<GgufQ4_0>, {1, 33}, {}, {bytes}, nullptr, "f: t");
  EXPECT_EQ(bad_shape.error().code, ErrorCode::kInvalidInput);
  auto truncated = PackedWeight::bind(kFormatId<GgufQ4_0>, {2, 64}, {}, {bytes}, nullptr, "f: t");
  EXPECT_EQ(truncated.error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(truncated.error().message,
            "format.bind: f: t: got 36 bytes, need 72 for gguf.q4_0 of [2, 64]; the file may be "
            "truncated "
            "or its config may belong to another file");
}

}  // namespace
}  // namespace packstone
