// Proves that the encoders of folders follow their producers byte for byte or by definition, that
// the search is never worse, that decoded values encode to themselves, and that hostile values are
// refused by place or kept finite.
#include "packstone/quantize/folder_encode.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/transcode/unpack.h"
#include "tests/support/vectors.h"

namespace packstone {
namespace {

constexpr std::uint64_t kSeed = 20260801;

MatrixView view_of(const std::vector<float>& values, std::int64_t cols) {
  return {values.data(), static_cast<std::int64_t>(values.size()) / cols, cols, cols};
}

std::vector<float> normal_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = 0.02f * normal(random);
  return values;
}

std::vector<std::vector<std::byte>> planes_of(const PackedWeight& weight) {
  std::vector<std::vector<std::byte>> planes;
  for (int i = 0; i < weight.plane_count(); ++i)
    planes.emplace_back(weight.plane(i).begin(), weight.plane(i).end());
  return planes;
}

std::vector<float> decoded(const PackedWeight& weight) {
  const Shape shape = weight.shape();
  std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.cols));
  decode_rows(weight, 0, shape.rows, values);
  return values;
}

// Every way to give a weight of [128, 512] scales, by layout.
struct Target {
  FormatId id;
  FormatParams params;
  std::string name() const {
    return fmt::format("{} {}x{}", format_info(id).name, params.group_rows, params.group_cols);
  }
};
constexpr std::int64_t kRows = 128, kCols = 512;

std::vector<Target> all_targets(const MatrixView& weight) {
  std::vector<Target> targets;
  for (std::uint16_t index = 0; index < format_count(); ++index) {
    const FormatId id{index};
    const std::string_view layout = format_info(id).layout;
    if (!folder_encode_supports(id)) continue;
    if (layout.starts_with("fp8")) {
      for (const auto& [rows, cols] : {std::pair<int, int>{1, kCols}, {kRows, kCols}, {64, 128}})
        targets.push_back({id, {cols, FloatType::kF32, rows}});
    } else if (layout.starts_with("bnb-") && layout != "bnb-int8") {
      for (const int block : {32, 64, 256, 1024, 4096}) {
        const float offset = layout.ends_with("nested") ? nested_offset(weight, block) : 0.0f;
        targets.push_back({id, bnb_4bit_params({kRows, kCols}, block, offset)});
      }
    } else {
      const bool whole = format_info(id).group_sizes[0] == kWholeRow;
      targets.push_back({id, {whole ? static_cast<std::int32_t>(kCols) : 0}});
    }
  }
  return targets;
}

// Compares with the vectors of these formats, byte for byte; `cases` in all.
void expect_bytes(std::initializer_list<const char*> names, int cases) {
  ThreadPool pool(2);
  int compared = 0;
  for (const char* name : names)
    for (const vectors::Case& vector : vectors::load("folder_encode", name)) {
      const auto made = folder_encode(view_of(vector.values, vector.shape.cols), vector.id,
                                      vector.params, EncodeMode::kParity, pool, "vector");
      ASSERT_TRUE(made.has_value()) << name << made.error().message;
      const auto planes = planes_of(made->weight);
      for (std::size_t plane = 0; plane < planes.size(); ++plane)
        for (std::size_t i = 0; i < planes[plane].size(); ++i)
          ASSERT_EQ(planes[plane][i], vector.planes[plane][i])
              << name << " case " << compared << " plane " << plane << " byte " << i;
      ++compared;
    }
  EXPECT_EQ(compared, cases);
}

TEST(FolderEncode, D23_BytesAreThoseOfBitsandbytes) {
  expect_bytes({"bnb.nf4", "bnb.nf4.nested", "bnb.fp4", "bnb.fp4.nested"}, 2 * (9 + 3));
}
TEST(FolderEncode, D24_Int8BytesAreThoseOfBitsandbytes) {
  expect_bytes({"bnb.int8"}, 2);
}
TEST(FolderEncode, BytesAreThoseOfMlx) {
  expect_bytes({"mx.mxfp4", "mx.mxfp8", "mlx.nvfp4"}, 2 + 2 + 1);
}

// The code with the least distance in float64, the even one of two; the largest of all beyond.
std::uint32_t nearest_by_definition(Fp8Kind kind, float value) {
  const float most = fp8_to_float(kind, fp8_largest_code(kind));
  if (std::abs(value) > most) value = std::copysign(most, value);
  std::uint32_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t code = 0; code <= fp8_largest_code(kind); ++code) {
    const double distance =
        std::abs(std::abs(static_cast<double>(value)) - fp8_to_float(kind, code));
    if (distance > least || (distance == least && code % 2 != 0)) continue;
    least = distance;
    best = code;
  }
  if (is_fnuz(kind) && best == 0) return 0;
  return best | (std::signbit(value) ? 0x80u : 0u);
}

// All codes, all middles between neighbours and the numbers beside them, zeros, subnormal numbers
// of binary32 and what lies beyond the largest.
TEST(FolderEncode, D22_CodesAreNearestTiesToEvenForEveryKind) {
  for (const Fp8Kind kind :
       {Fp8Kind::kE4M3FN, Fp8Kind::kE5M2, Fp8Kind::kE4M3FNUZ, Fp8Kind::kE5M2FNUZ}) {
    std::vector<float> values = {0.0f, 1e-45f, 1e-39f, 1e-30f, 1e30f, 3.4e38f, INFINITY};
    for (std::uint32_t code = 0; code <= fp8_largest_code(kind); ++code) {
      const float value = fp8_to_float(kind, code);
      EXPECT_EQ(float_to_fp8(kind, value), code);
      if (code != 0 || !is_fnuz(kind)) {
        EXPECT_EQ(float_to_fp8(kind, -value), code | 0x80u);
      }
      values.push_back(value);
      if (code == 0) continue;
      const float middle = (fp8_to_float(kind, code - 1) + value) / 2;
      for (const float near :
           {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)})
        values.push_back(near);
    }
    for (const float value : values)
      for (const float either : {value, -value})
        EXPECT_EQ(float_to_fp8(kind, either), nearest_by_definition(kind, either))
            << fp8_name(kind) << " " << either;
  }
}

// The worked example of GPTQModel's layout: one row whose largest magnitude is 1.
TEST(FolderEncode, D22_KnownAnswersOfFp8) {
  ThreadPool pool(1);
  const std::vector<float> row = {0.5f, -1, 0.25f, 0, -0.1f, 0.9f, 0.03f, -0.6f};
  struct Answer {
    FormatId id;
    float scale;
    std::vector<int> codes;
  };
  const Answer answers[] = {
      {kFormatId<Fp8Divisor<Fp8Kind::kE4M3FN>>,
       448,
       {0x76, 0xFE, 0x6E, 0x00, 0xE3, 0x7D, 0x55, 0xF8}},
      {kFormatId<Fp8Divisor<Fp8Kind::kE5M2>>,
       57344,
       {0x77, 0xFB, 0x73, 0x00, 0xEE, 0x7A, 0x67, 0xF8}},
      {kFormatId<Fp8Divisor<Fp8Kind::kE4M3FNUZ>>,
       240,
       {0x77, 0xFF, 0x6F, 0x00, 0xE4, 0x7E, 0x56, 0xF9}},
      {kFormatId<Fp8Divisor<Fp8Kind::kE5M2FNUZ>>,
       57344,
       {0x7B, 0xFF, 0x77, 0x00, 0xF2, 0x7E, 0x6B, 0xFC}},
  };
  for (const Answer& answer : answers) {
    const auto made = folder_encode(view_of(row, 8), answer.id, {8, FloatType::kF32, 1},
                                    EncodeMode::kParity, pool, "t");
    ASSERT_TRUE(made.has_value());
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(static_cast<int>(made->weight.plane(0)[i]), answer.codes[i])
          << format_info(answer.id).name << " at " << i;
    float scale = 0;
    std::memcpy(&scale, made->weight.plane(1).data(), 4);
    EXPECT_EQ(scale, answer.scale);
  }
}

// Both meanings of the stored number, three ways to share it: the number is the definition's and
// no code has a nearer neighbour.
TEST(FolderEncode, D22_ParityIsTheDefinitionForEverySharing) {
  SCOPED_TRACE(kSeed);
  ThreadPool pool(2);
  const std::vector<float> values = normal_values(kRows * kCols, kSeed);
  const MatrixView weight = view_of(values, kCols);
  for (const Target& target : all_targets(weight)) {
    const std::string_view layout = format_info(target.id).layout;
    if (!layout.starts_with("fp8") || layout.ends_with("e8m0")) continue;
    const PackedWeight made =
        folder_encode(weight, target.id, target.params, EncodeMode::kParity, pool, "t")->weight;
    const bool divides = layout.ends_with("divisor");
    const std::int64_t wide = kCols / target.params.group_cols;
    for (std::int64_t unit = 0; unit < kRows / target.params.group_rows * wide; ++unit) {
      float largest = 0;
      const std::int64_t row = unit / wide * target.params.group_rows,
                         col = unit % wide * target.params.group_cols;
      for (std::int64_t r = 0; r < target.params.group_rows; ++r)
        for (std::int64_t c = 0; c < target.params.group_cols; ++c)
          largest = std::max(largest, std::abs(weight.row(row + r)[col + c]));
      float scale = 0;
      std::memcpy(&scale, made.plane(1).data() + 4 * unit, 4);
      const Fp8Kind kind = layout.find("e5m2fnuz") != layout.npos   ? Fp8Kind::kE5M2FNUZ
                           : layout.find("e4m3fnuz") != layout.npos ? Fp8Kind::kE4M3FNUZ
                           : layout.find("e5m2") != layout.npos     ? Fp8Kind::kE5M2
                                                                    : Fp8Kind::kE4M3FN;
      const double most = fp8_to_float(kind, fp8_largest_code(kind));
      const double wanted = divides ? most / largest : largest / most;
      EXPECT_NEAR(scale / wanted, 1.0, 2e-7) << target.name();
      for (std::int64_t c = 0; c < target.params.group_cols; ++c) {
        const double level = divides ? static_cast<double>(weight.row(row)[col + c]) * scale
                                     : static_cast<double>(weight.row(row)[col + c]) / scale;
        const auto code = static_cast<std::uint32_t>(
            made.plane(0)[static_cast<std::size_t>(row * kCols + col + c)]);
        const double distance = std::abs(level - fp8_to_float(kind, code));
        const auto by_definition = nearest_by_definition(kind, static_cast<float>(level));
        EXPECT_LE(distance, std::abs(level - fp8_to_float(kind, by_definition)) + 1e-5 * most)
            << target.name();
      }
    }
  }
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

TEST(FolderEncode, BestIsNeverWorseThanParity) {
  SCOPED_TRACE(kSeed);
  ThreadPool pool(2);
  const std::vector<float> values = normal_values(kRows * kCols, kSeed + 1);
  const MatrixView weight = view_of(values, kCols);
  for (const Target& target : all_targets(weight)) {
    const auto parity =
        folder_encode(weight, target.id, target.params, EncodeMode::kParity, pool, "t");
    const auto best = folder_encode(weight, target.id, target.params, EncodeMode::kBest, pool, "t");
    ASSERT_TRUE(parity.has_value() && best.has_value()) << target.name();
    EXPECT_LE(squared_error(values, decoded(best->weight)),
              squared_error(values, decoded(parity->weight)) * (1 + 1e-6))
        << target.name();
    RecordProperty(target.name(), fmt::format("{:.5f} {:.5f}", parity->report.relative_rms,
                                              best->report.relative_rms));
    if (std::getenv("PACKSTONE_SHOW") != nullptr)
      fmt::print("{:32} {:.5f} {:.5f}\n", target.name(), parity->report.relative_rms,
                 best->report.relative_rms);
  }
}

// Values that a format has are kept: encoding what was decoded gives the same values again.
TEST(FolderEncode, DecodedValuesEncodeToThemselves) {
  SCOPED_TRACE(kSeed);
  ThreadPool pool(2);
  std::vector<float> values = normal_values(kRows * kCols, kSeed + 2);
  const MatrixView weight = view_of(values, kCols);
  for (const Target& target : all_targets(weight)) {
    const std::string_view layout = format_info(target.id).layout;
    // A statistic that is itself rounded moves once more.
    if (layout.ends_with("nested") || layout.ends_with("nvfp4") || layout == "qqq-g128") continue;
    const auto made =
        folder_encode(weight, target.id, target.params, EncodeMode::kParity, pool, "t");
    ASSERT_TRUE(made.has_value());
    const std::vector<float> once = decoded(made->weight);
    const auto again = folder_encode(view_of(once, kCols), target.id, target.params,
                                     EncodeMode::kParity, pool, "t");
    ASSERT_TRUE(again.has_value());
    const std::vector<float> twice = decoded(again->weight);
    for (std::size_t i = 0; i < once.size(); ++i)
      ASSERT_NEAR(once[i], twice[i], 4e-7 * std::abs(once[i])) << target.name() << " at " << i;
  }
}

TEST(FolderEncode, ThreadCountDoesNotShow) {
  SCOPED_TRACE(kSeed);
  const std::vector<float> values = normal_values(kRows * kCols, kSeed + 3);
  const MatrixView weight = view_of(values, kCols);
  ThreadPool one(1), three(3);
  for (const Target& target : all_targets(weight))
    for (const EncodeMode mode : {EncodeMode::kBest, EncodeMode::kParity}) {
      const auto a = folder_encode(weight, target.id, target.params, mode, one, "t");
      const auto b = folder_encode(weight, target.id, target.params, mode, three, "t");
      EXPECT_EQ(planes_of(a->weight), planes_of(b->weight)) << target.name();
      EXPECT_EQ(a->report.relative_rms, b->report.relative_rms) << target.name();
    }
}

TEST(FolderEncode, ValuesThatAreNotFiniteAreRefusedByPlace) {
  ThreadPool pool(2);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values = normal_values(kRows * kCols, kSeed);
    values[70 * kCols + 33] = bad;
    values[100 * kCols + 1] = NAN;
    const MatrixView weight = view_of(values, kCols);
    for (const Target& target : all_targets(weight)) {
      FormatParams params = target.params;
      params.constant = 0;
      const auto made = folder_encode(weight, target.id, params, EncodeMode::kBest, pool, "f: w");
      ASSERT_FALSE(made.has_value()) << target.name();
      EXPECT_EQ(made.error().code, ErrorCode::kNotRepresentable);
      EXPECT_EQ(made.error().message,
                fmt::format("quantize.folder_encode: f: w: got {} at row 70, column 33, need "
                            "finite values; the source is damaged or was saved after an overflow",
                            bad));
    }
  }
}

// Rows of nothing but tiny values, of zeros, and of one huge value: whatever is written decodes to
// finite numbers, and a zero row to zeros.
TEST(FolderEncode, D22_HostileMagnitudesStayFinite) {
  ThreadPool pool(2);
  for (const float size : {0.0f, 1e-44f, 1.1e-38f, 1.3166e-36f, 1e37f})
    for (const EncodeMode mode : {EncodeMode::kBest, EncodeMode::kParity}) {
      std::vector<float> values = normal_values(kRows * kCols, kSeed);
      for (std::size_t i = 0; i < values.size(); i += 3) values[i] = 0;
      for (float& value : values) value *= size;
      const MatrixView weight = view_of(values, kCols);
      for (const Target& target : all_targets(weight)) {
        const auto made = folder_encode(weight, target.id, target.params, mode, pool, "t");
        if (!made) {  // scales of 8 bits alone do not reach so far
          EXPECT_EQ(format_info(target.id).layout, "mlx-nvfp4") << made.error().message;
          EXPECT_GE(size, 1e30f);
          continue;
        }
        for (const float value : decoded(made->weight)) {
          ASSERT_TRUE(std::isfinite(value)) << target.name() << " " << size;
          if (size == 0) {
            ASSERT_EQ(value, 0) << target.name();
          }
        }
      }
    }
}

// The published rule, in float64: the step is that of the row's or the group's largest value, codes
// are nearest, and the bytes of a group decode within half a step of the row's of the ideal value.
TEST(FolderEncode, D21_QqqIsTheDefinition) {
  SCOPED_TRACE(kSeed);
  ThreadPool pool(2);
  std::vector<float> values = normal_values(kRows * kCols, kSeed + 4);
  for (std::int64_t c = 0; c < kCols; ++c) values[static_cast<std::size_t>(3 * kCols + c)] = 0;
  const MatrixView weight = view_of(values, kCols);
  const PackedWeight row_wise =
      folder_encode(weight, kFormatId<Qqq>, {kCols}, EncodeMode::kParity, pool, "t")->weight;
  const PackedWeight grouped =
      folder_encode(weight, kFormatId<QqqG128>, {}, EncodeMode::kParity, pool, "t")->weight;
  std::vector<std::uint32_t> codes(kCols);
  std::vector<GroupValues> groups(4);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::span<const float> x(weight.row(row), kCols);
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    unpack_row(row_wise, row, codes, std::span(groups).first(1));
    const double step = (largest == 0 ? 1.0 : largest) / 7.0;
    EXPECT_NEAR(groups[0].scale / step, 1, 1e-7);
    for (std::int64_t c = 0; c < kCols; ++c) {
      const int level = static_cast<int>(codes[static_cast<std::size_t>(c)]) - 8;
      EXPECT_LE(std::abs(level), 7);
      EXPECT_LE(std::abs(x[static_cast<std::size_t>(c)] / step - level), 0.5 + 1e-6);
    }
    unpack_row(grouped, row, codes, groups);
    const double channel = (largest == 0 ? 1.0 : largest) / 127.0;
    std::vector<float> made(kCols);
    decode_row(grouped, row, made);
    for (std::int64_t c = 0; c < kCols; ++c) {
      EXPECT_NEAR(groups[static_cast<std::size_t>(c / 128)].scale / channel, 1, 1e-7);
      const auto part = x.subspan(static_cast<std::size_t>(c / 128 * 128), 128);
      float most = 0;
      for (const float value : part) most = std::max(most, std::abs(value));
      const double ideal_step = (most == 0 ? 1.0 : most) * 2 / 15.0;
      const int level = static_cast<int>(codes[static_cast<std::size_t>(c)]) - 8;
      const double position = x[static_cast<std::size_t>(c)] / ideal_step;
      EXPECT_LE(std::abs(std::min(position, 7.0) - level), 0.5 + 1e-6);
      // A byte holds no less than -128 steps of the row.
      const double ideal = std::max(level * ideal_step, -128 * channel);
      EXPECT_NEAR(made[static_cast<std::size_t>(c)], ideal,
                  channel / 2 + std::abs(level * ideal_step) * 0x1p-10);
    }
  }
}

TEST(FolderEncode, D23_NestedOffsetIsTheMeanOfTheMaxima) {
  const std::vector<float> values = {1, -2, 3, 0.5f, -0.25f, 0.125f, 7, -8, 9, 1};
  EXPECT_EQ(nested_offset(view_of(values, 5), 4), static_cast<float>((3 + 8 + 9) / 3.0));
  const std::vector<float> zeros(6);
  EXPECT_EQ(nested_offset(view_of(zeros, 6), 4), static_cast<float>(1e-38f / 2.0));
}

TEST(FolderEncode, D22_IllegalShapesAreRefused) {
  ThreadPool pool(1);
  const std::vector<float> values(4 * 96);
  const MatrixView weight = view_of(values, 96);
  const auto code = [&](FormatId id, const FormatParams& params) {
    return folder_encode(weight, id, params, EncodeMode::kBest, pool, "t").error().code;
  };
  EXPECT_EQ(code(kFormatId<Fp8Divisor<Fp8Kind::kE4M3FN>>, {64, FloatType::kF32, 2}),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(code(kFormatId<BnbNf4>, bnb_4bit_params({4, 96}, 16)), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(kFormatId<BnbNf4>, bnb_4bit_params({4, 96}, 8192)), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(kFormatId<QqqG128>, {}), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(kFormatId<MlxAffine<4>>, {32}), ErrorCode::kUnsupported);
  EXPECT_EQ(
      folder_encode({nullptr, 0, 64, 64}, kFormatId<MlxNvfp4>, {}, EncodeMode::kBest, pool, "t")
          .error()
          .code,
      ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace packstone
