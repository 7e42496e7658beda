// Proves that round-to-nearest gives the bytes of the reference quantizers, refuses what it must
// not write, and reports the same whatever the thread count.
#include <cmath>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/quantize/group_rules.h"
#include "packstone/quantize/quantizer.h"
#include "tests/support/vectors.h"

namespace packstone {
namespace {

constexpr std::uint64_t kSeed = 20260801;

RowSource rows_of(const std::vector<float>& values, std::int64_t cols) {
  return [&values, cols](std::int64_t row, std::span<float> out) {
    std::copy_n(values.begin() + row * cols, cols, out.begin());
  };
}

std::vector<std::vector<std::byte>> planes_of(const PackedWeight& weight) {
  std::vector<std::vector<std::byte>> planes;
  for (int i = 0; i < weight.plane_count(); ++i)
    planes.emplace_back(weight.plane(i).begin(), weight.plane(i).end());
  return planes;
}

TEST(Rtn, BytesEqualTheReferences) {
  ThreadPool pool(1);
  int compared = 0;
  for (std::uint16_t index = 0; index < format_count(); ++index) {
    const FormatId id{index};
    if (!rtn_supports(id)) continue;
    for (const vectors::Case& vector : vectors::load("quantize", format_info(id).name)) {
      const auto made = rtn(rows_of(vector.values, vector.shape.cols), vector.shape, id,
                            vector.params, pool, "vector");
      ASSERT_TRUE(made.has_value()) << made.error().message;
      const auto planes = planes_of(made->weight);
      for (std::size_t plane = 0; plane < planes.size(); ++plane)
        for (std::size_t i = 0; i < planes[plane].size(); ++i)
          ASSERT_EQ(planes[plane][i], vector.planes[plane][i])
              << format_info(id).name << " group " << vector.params.group_cols << " plane " << plane
              << " byte " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 3 + 6 * 3);
}

struct Answer {
  std::vector<float> x;  // the rest of the block is zero
  std::uint32_t d;
  std::vector<int> levels;  // of the first values
};

// Contract B23, B24: known answers of Q8_0, the corners of the binary32 and binary16 ranges
// included.
TEST(GroupRules, ContractB24KnownAnswersOfQ8_0) {
  std::vector<float> ramp(32);
  for (int i = 0; i < 32; ++i) ramp[static_cast<std::size_t>(i)] = static_cast<float>(i - 16);
  const float tiny = std::ldexp(1.0f, -25);
  const std::vector<Answer> answers = {
      {{127, .5f, -.5f, 1.5f, -1.5f, 2.5f, -2.5f, 126.5f},
       0x3C00,
       {127, 1, -1, 2, -2, 3, -3, 127, 0}},
      {ramp, 0x3008, {-127, -119, -111, -103, -95, -87, -79, -71, -64, -56, -48,
                      -40,  -32,  -24,  -16,  -8,  0,   8,   16,  24,  32,  40,
                      48,   56,   64,   71,   79,  87,  95,  103, 111, 119}},
      {{127 * tiny, -127 * tiny, 64 * tiny}, 0x0000, {127, -127, 64, 0}},
      {{8320913}, 0x7BFF, {127, 0}},
      {{8321040}, 0x7C00, {127, 0}},
      {{std::ldexp(127.0f, -128)}, 0x0000, {0, 0}},
      {{127 * (std::ldexp(1.0f, -128) + std::ldexp(1.0f, -149))}, 0x0000, {127, 0}},
      {{std::ldexp(1.0f, -149)}, 0x0000, {0, 0}},
      {{INFINITY, 1, -3}, 0x7C00, {0, 0, 0, 0}},
  };
  for (const Answer& answer : answers) {
    std::vector<float> x = answer.x;
    x.resize(32);
    std::vector<std::uint32_t> codes(32);
    RawParams raw;
    quantize_q8_0(x, codes, raw);
    EXPECT_EQ(raw.pattern[0], answer.d) << x[0];
    for (std::size_t i = 0; i < answer.levels.size(); ++i)
      EXPECT_EQ(static_cast<int>(codes[i]) - 128, answer.levels[i]) << x[0] << " at " << i;
  }
}

// Contract B25: a NaN reaches every value of its block, at each of the 32 positions.
TEST(GroupRules, ContractB25NanReachesItsWholeBlock) {
  for (std::size_t at = 0; at < 32; ++at) {
    std::vector<float> x(32, 1.0f);
    x[at] = NAN;
    std::vector<std::uint32_t> codes(32);
    for (auto* rule : {quantize_q8_0, quantize_q4_0, quantize_q4_1}) {
      RawParams raw;
      rule(x, codes, raw);
      EXPECT_TRUE(std::isnan(half_to_float(static_cast<std::uint16_t>(raw.pattern[0]))));
    }
    RawParams raw;
    quantize_q8_0(x, codes, raw);
    for (const std::uint32_t code : codes) EXPECT_EQ(code, 128u);
  }
}

TEST(Rtn, AffineCodesAreNearestToTheStoredScale) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  ThreadPool pool(1);
  for (FloatType metadata : {FloatType::kF16, FloatType::kBF16}) {
    std::vector<float> values(4 * 256);
    for (float& value : values) value = normal(random);
    const auto made = rtn(rows_of(values, 256), {4, 256}, kFormatId<MlxAffine<8>>, {64, metadata},
                          pool, "random");
    ASSERT_TRUE(made.has_value());
    std::vector<std::uint32_t> codes(256);
    std::vector<GroupValues> groups(4);
    for (std::int64_t row = 0; row < 4; ++row) {
      unpack_row(made->weight, row, codes, groups);
      for (std::size_t col = 0; col < 256; ++col) {
        const float value = values[static_cast<std::size_t>(row) * 256 + col];
        auto error = [&](std::uint32_t code) {
          return std::abs(decode_value<LinearScheme>(groups[col / 64], code) - value);
        };
        const float slack = std::abs(groups[col / 64].scale) * 1e-3f;
        if (codes[col] > 0) {
          EXPECT_LE(error(codes[col]), error(codes[col] - 1) + slack);
        }
        if (codes[col] < 255) {
          EXPECT_LE(error(codes[col]), error(codes[col] + 1) + slack);
        }
      }
    }
    EXPECT_GT(made->report.relative_rms, 0.001);
    EXPECT_LT(made->report.relative_rms, 0.01);
  }
}

TEST(Rtn, ReportNamesTheLargestErrorAndLostGroups) {
  ThreadPool pool(2);
  std::vector<float> values(2 * 32);
  values[40] = 1.0f;
  values[41] = 0.13f;
  const auto made = rtn(rows_of(values, 32), {2, 32}, kFormatId<GgufQ4_0>, {}, pool, "t").value();
  EXPECT_EQ(made.report.row, 1);
  EXPECT_EQ(made.report.col, 9);
  EXPECT_NEAR(made.report.max_abs, 0.005, 1e-6);
  EXPECT_NEAR(made.report.relative_rms, 0.005 / std::sqrt(1.0169), 1e-6);
  EXPECT_EQ(made.report.lost_groups, 0);
  std::vector<float> tiny(32, 1e-9f);
  EXPECT_EQ(rtn(rows_of(tiny, 32), {1, 32}, kFormatId<GgufQ8_0>, {}, pool, "t")->report.lost_groups,
            1);
  EXPECT_EQ(rtn(rows_of(tiny, 32), {0, 32}, kFormatId<GgufQ8_0>, {}, pool, "t")->report.row, -1);
}

// SEC-20: a quantizer never writes a non-finite scale.
TEST(Rtn, Sec20RefusesNonFiniteValuesAndScales) {
  ThreadPool pool(3);
  auto message = [&](float value, FormatId id, FormatParams params) {
    std::vector<float> values(20 * 64);
    values[19 * 64 + 5] = NAN;
    values[3 * 64 + 40] = value;
    const auto made = rtn(rows_of(values, 64), {20, 64}, id, params, pool, "f: w");
    EXPECT_EQ(made.error().code, ErrorCode::kNotRepresentable);
    return made.error().message;
  };
  EXPECT_EQ(
      message(-INFINITY, kFormatId<GgufQ4_0>, {}),
      "quantize.rtn: f: w: got -inf at row 3, column 40, need finite values; the source is damaged "
      "or was saved after an overflow");
  EXPECT_EQ(
      message(NAN, kFormatId<MlxAffine<4>>, {32, FloatType::kF32}),
      "quantize.rtn: f: w: got nan at row 3, column 40, need finite values; the source is damaged "
      "or was saved after an overflow");
  EXPECT_TRUE(
      message(1e9f, kFormatId<GgufQ8_0>, {})
          .starts_with("quantize.rtn: f: w: got 0 at row 3, column 32, need values within"));
  for (FormatId id : {kFormatId<MlxAffine<4>>, kFormatId<MlxAffine<8>>})
    EXPECT_NE(message(70000.0f, id, {64, FloatType::kF16}).find("use mlx-affine with bfloat16"),
              std::string::npos);
}

// GRP-01, GRP-02: columns that the group does not divide, and groups of 0 or -1, are refused before
// anything is quantized.
TEST(Rtn, Grp01Grp02RefusesIllegalTargets) {
  ThreadPool pool(1);
  const std::vector<float> values(64);
  auto code = [&](FormatId id, Shape shape, FormatParams params) {
    return rtn(rows_of(values, shape.cols), shape, id, params, pool, "t").error().code;
  };
  EXPECT_EQ(code(kFormatId<GgufQ4_K>, {1, 256}, {}), ErrorCode::kUnsupported);
  EXPECT_EQ(code(kFloat16, {1, 64}, {}), ErrorCode::kUnsupported);
  EXPECT_EQ(code(kFormatId<GgufQ4_0>, {1, 33}, {}), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(kFormatId<MlxAffine<4>>, {1, 64}, {16, FloatType::kF16}),
            ErrorCode::kInvalidInput);
  for (std::int64_t cols : {192, 4304, 100})
    EXPECT_EQ(code(kFormatId<MlxAffine<4>>, {1, cols}, {128, FloatType::kF16}),
              ErrorCode::kInvalidInput);
  for (std::int32_t group : {0, -1, 64 * 3})
    EXPECT_EQ(code(kFormatId<MlxAffine<4>>, {1, 192}, {group, FloatType::kF16}),
              ErrorCode::kInvalidInput);
  EXPECT_FALSE(rtn_supports(kFormatId<GgufQ5_0>));
}

TEST(Rtn, ThreadCountDoesNotShow) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(67 * 128);
  for (float& value : values) value = normal(random);
  for (FormatId id :
       {kFormatId<GgufQ4_0>, kFormatId<GgufQ4_1>, kFormatId<GgufQ8_0>, kFormatId<MlxAffine<3>>}) {
    const FormatParams params{format_info(id).group_sizes.size() > 1 ? 64 : 0, FloatType::kF16};
    ThreadPool one(1);
    const auto first = rtn(rows_of(values, 128), {67, 128}, id, params, one, "t").value();
    for (int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      const auto other = rtn(rows_of(values, 128), {67, 128}, id, params, pool, "t").value();
      EXPECT_EQ(planes_of(first.weight), planes_of(other.weight));
      EXPECT_EQ(first.report.relative_rms, other.report.relative_rms);
      EXPECT_EQ(first.report.max_abs, other.report.max_abs);
      EXPECT_EQ(first.report.row, other.report.row);
      EXPECT_EQ(first.report.col, other.report.col);
    }
  }
}

}  // namespace
}  // namespace packstone
