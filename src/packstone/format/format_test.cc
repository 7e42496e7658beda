// Proves, for every format of the list, that its layout is a bijection on ragged shapes too.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "packstone/format/packed_weight.h"
#include "packstone/format/registry.h"
#include "packstone/format/variants.h"

namespace packstone {
namespace {

template <class F>
bool proven(Shape shape, FormatParams params) {
  if constexpr (PlacedCodes<F>)
    return proves_bijection<F, 1 << 19>(shape, params);
  else
    return proves_block_params<F>();
}

TEST(Format, EveryLayoutIsABijection) {
  for (std::uint16_t id = 0; id < format_count(); ++id)
    visit(FormatId{id}, []<class F>() {
      int count = 0;
      for (const Shape shape : {Shape{1, 1}, Shape{3, 5}, Shape{2, 32}, Shape{3, 64}, Shape{1, 96},
                                Shape{8, 96}, Shape{3, 256}, Shape{2, 512}, Shape{24, 128},
                                Shape{64, 32}, Shape{64, 192}, Shape{64, 256}})
        for (const FormatParams& params : legal_variants(kFormatId<F>, shape)) {
          EXPECT_TRUE(proven<F>(shape, params)) << F::kName << " " << shape.rows << "x"
                                                << shape.cols << " group " << params.group_cols;
          ++count;
        }
      EXPECT_GT(count, 0) << F::kName;
    });
}

// FNV-1a of the levels of every point, as the PyPI package gguf expands its grids.
TEST(Format, IqGridsAreTheProducers) {
  std::ifstream stream(PACKSTONE_SOURCE_DIR "/tests/vectors/iq_grids.json");
  const auto json = nlohmann::json::parse(stream, nullptr, false);
  ASSERT_TRUE(json.is_object());
  const auto expect = [&](const auto& grid, const char* name) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const std::int8_t level : grid.level)
      hash = (hash ^ static_cast<std::uint8_t>(level)) * 0x100000001B3u;
    EXPECT_EQ(fmt::format("{:016x}", hash), json["fnv1a"][name].get<std::string>()) << name;
  };
  expect(kIq1Grid, "IQ1_S");
  expect(kIq2XxsGrid, "IQ2_XXS");
  expect(kIq2XsGrid, "IQ2_XS");
  expect(kIq2SGrid, "IQ2_S");
  expect(kIq3XxsGrid, "IQ3_XXS");
  expect(kIq3SGrid, "IQ3_S");
}

// Every byte decodes; those that no code gives are the ones that packing does not give back.
TEST(Format, TernaryBytesDecodeAndAreCanonicalOrNot) {
  int other[2] = {};
  for (int byte = 0; byte < 256; ++byte) {
    unsigned char block[54], back[54] = {};
    std::fill(std::begin(block), std::end(block), static_cast<unsigned char>(byte));
    std::uint8_t codes[256];
    GgufTQ1_0::read_block(block, codes);
    ASSERT_LE(*std::ranges::max_element(codes), 2);
    ASSERT_TRUE(GgufTQ1_0::write_block(codes, back));
    other[0] += back[0] != byte;
    other[1] += back[48] != byte;
    std::uint8_t again[256];
    GgufTQ1_0::read_block(back, again);
    ASSERT_TRUE(std::ranges::equal(codes, again)) << byte;
  }
  EXPECT_EQ(other[0], 256 - 243);
  EXPECT_EQ(other[1], 256 - 81);
  std::uint8_t codes[256] = {};
  unsigned char block[54];
  codes[255] = 3;
  EXPECT_FALSE(GgufTQ1_0::write_block(codes, block));
}

// Which scale bytes of NVFP4 are read as ggml reads them, against both definitions (B22).
TEST(Format, B22_ScaleBytesOfNvfp4) {
  EXPECT_EQ(ggml_ue4m3_to_float(0x7F), 0.0f);
  EXPECT_EQ(ggml_ue4m3_to_float(0xFF), 480.0f);
  EXPECT_EQ(ggml_ue4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(ggml_ue4m3_to_float(1), 0x1p-9f);
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float value = ggml_ue4m3_to_float(code);
    if (code % 128 != 127) {
      EXPECT_EQ(value, ggml_ue4m3_to_float(code ^ 0x80)) << code;
    }
    std::uint32_t back = 0;
    ASSERT_TRUE(float_to_ggml_ue4m3_exact(value, back)) << code;
    EXPECT_EQ(back, code == 0xFF || code < 0x7F ? code : code == 0x7F ? 0 : code & 0x7F) << code;
  }
  std::uint32_t back = 0;
  for (const float none :
       {-0.0f, -1.0f, 0x1p-10f, 0x1.8p-9f, 1.0625f, 481.0f, 1e38f, INFINITY, NAN})
    EXPECT_FALSE(float_to_ggml_ue4m3_exact(none, back)) << none;
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
