// Proves that the matrix product of every kernel, format, batch and thread count equals the scalar
// reference bit for bit, holds the error bound gamma_k of contract B29 against float64, gives the
// decoded weight back for a unit vector (B34), and that kernels are chosen and forced by name.
// Covers KRN-01 (few and odd output columns), KRN-02 (k not a multiple of the tile), KRN-04 (narrow
// n, few rows), NUM-07 (large activations, batches around 64).
#include "packstone/kernel/matmul/linear.h"

#include <cstdlib>

#include "packstone/base/cpu.h"
#include "packstone/format/registry.h"
#include "packstone/kernel/matmul/kernel_list.h"
#include "packstone/kernel/test_weights.h"
#include "packstone/transcode/test_words.h"

namespace packstone {
namespace {

using testing::decoded;
using testing::first_difference;
using testing::random_floats;
using testing::random_weight;
using testing::same_float;
using testing::variants;

// Sets PACKSTONE_FORCE_KERNEL for one scope.
class Forced {
 public:
  explicit Forced(std::string_view name) {
    ::setenv("PACKSTONE_FORCE_KERNEL", std::string(name).c_str(), 1);
  }
  ~Forced() { ::unsetenv("PACKSTONE_FORCE_KERNEL"); }
};

Linear prepare(const PackedWeight& weight, std::string_view isa, LinearOptions options = {}) {
  const Forced forced(isa);
  return std::move(*Linear::prepare(weight, std::move(options)));
}

std::vector<float> run(const Linear& layer, const std::vector<float>& x, std::int64_t m,
                       int threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[threads];
  if (!pool) pool = std::make_unique<ThreadPool>(threads);
  const MatmulWorkspace workspace(threads, layer.shape().cols);
  std::vector<float> y(static_cast<std::size_t>(m * layer.shape().rows), -1.0f);
  layer.run(x.data(), m, layer.shape().cols, y.data(), layer.shape().rows, *pool, workspace);
  return y;
}

bool legal(FormatId id, Shape shape, const FormatParams& params) {
  return layout_rule(id, shape, params) == nullptr;
}

// The shape, or with 64 rows where the format's tiles need them.
Shape fitted(FormatId id, Shape shape, const FormatParams& params) {
  return legal(id, shape, params) ? shape : Shape{64, shape.cols};
}

std::string label(const PackedWeight& weight, std::string_view isa) {
  return fmt::format("{} [{}, {}] group {} metadata {} {}", weight.format().name,
                     weight.shape().rows, weight.shape().cols, weight.params().group_cols,
                     static_cast<int>(weight.params().metadata), isa);
}

TEST(Linear, DecodeOfEveryKernelEqualsTheDerivedDecode) {
  std::mt19937_64 random(1);
  int compared = 0;
  for (std::uint16_t f = 0; f < format_count(); ++f)
    for (const FormatParams& params : variants(FormatId{f}))
      for (std::int64_t cols : {1, 15, 17, 32, 64, 96, 128, 256, 512, 576, 768})
        for (bool wild : {false, true}) {
          const Shape shape = fitted(FormatId{f}, {5, cols}, params);
          if (!legal(FormatId{f}, shape, params)) continue;
          const PackedWeight weight = random_weight(FormatId{f}, shape, params, random, wild);
          std::vector<float> expected = decoded(weight);
          expected.resize(static_cast<std::size_t>(5 * cols));
          for (const Isa* isa : isas()) {
            const Linear layer = prepare(weight, isa->name);
            std::vector<float> values(expected.size(), -1.0f);
            const std::int32_t ids[] = {0, 1, 2, 3, 4};
            layer.gather(ids, values.data());
            EXPECT_EQ(first_difference(values, expected), -1) << label(weight, isa->name);
            ++compared;
          }
        }
  EXPECT_GT(compared, 100);
}

TEST(Linear, BitsDependOnNeitherKernelNorBatchNorThreads) {
  const unsigned seed = 7;
  std::mt19937_64 random(seed);
  for (std::uint16_t f = 0; f < format_count(); ++f)
    for (const FormatParams& params : variants(FormatId{f})) {
      Shape shape{37, 256};
      for (const std::int64_t cols : {96, 100})
        if (legal(FormatId{f}, {37, cols}, params)) shape.cols = cols;
      shape = fitted(FormatId{f}, shape, params);
      const PackedWeight weight = random_weight(FormatId{f}, shape, params, random);
      const std::vector<float> x = random_floats(64 * shape.cols, random);
      const std::vector<float> expected = run(prepare(weight, "scalar"), x, 64, 1);
      for (const Isa* isa : isas()) {
        const Linear layer = prepare(weight, isa->name);
        for (int threads : {1, 2, 3, 4})
          for (std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64}) {
            if (isa->name == "scalar" && (threads == 3 || (m > 2 && m < 17))) continue;
            const std::vector<float> y = run(layer, x, m, threads);
            const std::vector<float> head(expected.begin(), expected.begin() + m * shape.rows);
            ASSERT_EQ(first_difference(y, head), -1) << label(weight, isa->name) << " m " << m
                                                     << " threads " << threads << " seed " << seed;
          }
      }
    }
}

// KRN-01, KRN-02, KRN-04: the shapes those faults name.
TEST(Linear, ShapesOfKnownFaultsHoldTheBound) {
  std::mt19937_64 random(11);
  std::vector<Shape> shapes;
  for (std::int64_t rows : {1, 4, 7, 32, 33, 63, 65, 96}) shapes.push_back({rows, 1024});
  for (std::int64_t cols : {544, 608, 528, 624}) shapes.push_back({33, cols});
  for (std::int64_t cols : {1, 2, 15, 16, 17, 31, 33, 63, 64, 96, 100, 576})
    shapes.push_back({5, cols});
  shapes.push_back({64, 128});
  int tested = 0;
  for (std::uint16_t f = 0; f < format_count(); ++f)
    for (const Shape shape : shapes) {
      const FormatParams params = variants(FormatId{f}).at(0);
      if (!legal(FormatId{f}, shape, params)) continue;
      const PackedWeight weight = random_weight(FormatId{f}, shape, params, random);
      const std::vector<float> w = decoded(weight);
      for (std::int64_t m : {1, 9}) {
        const std::vector<float> x = random_floats(m * shape.cols, random);
        const std::vector<float> y = run(*Linear::prepare(weight), x, m, 2);
        const double u = std::ldexp(1.0, -24), k = static_cast<double>(shape.cols);
        const double gamma = k * u / (1 - k * u);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t r = 0; r < shape.rows; ++r) {
            double exact = 0, size = 0;
            for (std::int64_t c = 0; c < shape.cols; ++c) {
              const double product =
                  static_cast<double>(x[static_cast<std::size_t>(i * shape.cols + c)]) *
                  w[static_cast<std::size_t>(r * shape.cols + c)];
              exact += product;
              size += std::abs(product);
            }
            ASSERT_LE(std::abs(y[static_cast<std::size_t>(i * shape.rows + r)] - exact),
                      gamma * size + 1e-300)
                << label(weight, "") << " m " << m << " row " << r;
          }
      }
      ++tested;
    }
  EXPECT_GT(tested, 50);
}

// B34; a zero may lose its sign, because the other products are zeros of either sign.
TEST(Linear, UnitVectorGivesTheDecodedColumn) {
  std::mt19937_64 random(13);
  for (std::uint16_t f = 0; f < format_count(); ++f)
    for (const FormatParams& params : variants(FormatId{f})) {
      const Shape shape = fitted(FormatId{f}, {19, 256}, params);
      const PackedWeight weight = random_weight(FormatId{f}, shape, params, random);
      const std::vector<float> w = decoded(weight);
      for (const Isa* isa : isas()) {
        const Linear layer = prepare(weight, isa->name);
        for (std::int64_t col : {0, 1, 15, 16, 31, 100, 255}) {
          std::vector<float> x(256, 0.0f);
          x[static_cast<std::size_t>(col)] = 1.0f;
          const std::vector<float> y = run(layer, x, 1, 1);
          for (std::int64_t row = 0; row < shape.rows; ++row) {
            const float value = w[static_cast<std::size_t>(row * 256 + col)];
            const float got = y[static_cast<std::size_t>(row)];
            ASSERT_TRUE(same_float(got, value) || (got == 0.0f && value == 0.0f))
                << label(weight, isa->name) << " col " << col;
          }
        }
      }
    }
}

// NUM-07: activations that binary16 cannot hold stay finite and equal in every batch.
TEST(Linear, LargeActivationsStayFiniteInEveryBatch) {
  std::mt19937_64 random(17);
  const PackedWeight weight = random_weight(kFormatId<GgufQ4_0>, {48, 256}, {}, random);
  std::vector<float> x = random_floats(65 * 256, random);
  for (std::size_t i = 0; i < 65; ++i) x[i * 256 + 7] = 70000.0f;
  const Linear layer = *Linear::prepare(weight);
  const std::vector<float> all = run(layer, x, 65, 2);
  for (float value : all) ASSERT_TRUE(std::isfinite(value));
  for (std::int64_t m : {1, 63, 64}) {
    const std::vector<float> y = run(layer, x, m, 2);
    EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin())) << m;
  }
}

TEST(Linear, NotANumberAndInfinityReachTheResult) {
  std::mt19937_64 random(19);
  const PackedWeight weight = random_weight(kFloat32, {20, 100}, {}, random);
  for (const Isa* isa : isas()) {
    const Linear layer = prepare(weight, isa->name);
    for (std::int64_t m : {1, 7}) {
      std::vector<float> x(static_cast<std::size_t>(m * 100), 1.0f);
      x[99] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> y = run(layer, x, m, 1);
      for (std::size_t r = 0; r < 20; ++r) EXPECT_TRUE(std::isnan(y[r]));
      for (std::size_t r = 20; r < y.size(); ++r) EXPECT_TRUE(std::isfinite(y[r]));
      x[99] = std::numeric_limits<float>::infinity();
      y = run(layer, x, m, 1);
      for (std::size_t r = 0; r < 20; ++r) EXPECT_TRUE(std::isinf(y[r]));
    }
  }
}

TEST(Linear, RowMapReordersRowsOnly) {
  std::mt19937_64 random(23);
  const PackedWeight weight =
      random_weight(kFormatId<MlxAffine<4>>, {40, 128}, {64, FloatType::kF16}, random);
  std::vector<std::int32_t> map;
  for (int i = 0; i < 50; ++i) map.push_back(static_cast<std::int32_t>(random() % 40));
  const std::vector<float> x = random_floats(3 * 128, random);
  for (const Isa* isa : isas()) {
    const Linear plain = prepare(weight, isa->name), mapped = prepare(weight, isa->name, {map});
    EXPECT_EQ(mapped.shape(), (Shape{50, 128}));
    for (std::int64_t m : {1, 3}) {
      const std::vector<float> y = run(plain, x, m, 2), z = run(mapped, x, m, 2);
      for (std::size_t i = 0; i < static_cast<std::size_t>(m); ++i)
        for (std::size_t r = 0; r < 50; ++r)
          ASSERT_TRUE(same_float(z[i * 50 + r], y[i * 40 + static_cast<std::size_t>(map[r])]));
    }
  }
  const auto bad = Linear::prepare(weight, {{0, 40}});
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(bad.error().message, "kernel.prepare: stored row 1: got 40, need 0 to 39");
}

TEST(Linear, ManyLayersInOneDispatchGiveTheSameBits) {
  std::mt19937_64 random(29);
  const Linear a = *Linear::prepare(random_weight(kFormatId<GgufQ4_0>, {70, 64}, {}, random));
  const Linear b = *Linear::prepare(random_weight(kBFloat16, {3, 64}, {}, random));
  const Linear c = *Linear::prepare(
      random_weight(kFormatId<MlxAffine<8>>, {129, 64}, {32, FloatType::kF32}, random));
  const std::vector<float> x = random_floats(5 * 64, random);
  const Linear* const layers[] = {&a, &b, &c};
  for (int threads : {1, 3})
    for (std::int64_t m : {1, 5}) {
      ThreadPool pool(threads);
      const MatmulWorkspace workspace(threads, 64);
      std::vector<std::vector<float>> y;
      for (const Linear* layer : layers)
        y.emplace_back(static_cast<std::size_t>(m * (layer->shape().rows + 2)), 0.0f);
      float* const targets[] = {y[0].data(), y[1].data(), y[2].data()};
      const std::int64_t strides[] = {72, 5, 131};
      Linear::run_many(layers, x.data(), m, 64, targets, strides, pool, workspace);
      for (std::size_t j = 0; j < 3; ++j) {
        const std::vector<float> alone = run(*layers[j], x, m, 1);
        const std::size_t rows = static_cast<std::size_t>(layers[j]->shape().rows);
        for (std::size_t i = 0; i < static_cast<std::size_t>(m); ++i)
          for (std::size_t r = 0; r < rows; ++r)
            ASSERT_TRUE(same_float(y[j][i * (rows + 2) + r], alone[i * rows + r]));
      }
    }
}

TEST(Linear, KernelIsChosenByCpuAndFormat) {
  std::mt19937_64 random(31);
  const std::string isa(isas().front()->name);
  const CpuFeatures& cpu = cpu_features();
  EXPECT_EQ(isa, cpu.avx512 ? "avx512" : cpu.avx2 ? "avx2" : cpu.neon ? "neon" : "scalar");
  const PackedWeight weight = random_weight(kFormatId<GgufQ6_K>, {2, 256}, {}, random);
  if (isa != "scalar") {
    EXPECT_EQ(Linear::prepare(weight)->kernel_name(), "matmul_gguf_q6_k_f32_" + isa);
  }
  EXPECT_EQ(prepare(weight, "scalar").kernel_name(), "matmul_derived_f32_scalar");
}

// The formats that models are run from most have a reader of their own on every vector instruction
// set; the others are decoded row by row.
TEST(Linear, CommonFormatsHaveAReader) {
  std::mt19937_64 random(37);
  for (std::uint16_t f = 0; f < format_count(); ++f) {
    const FormatInfo& info = format_info(FormatId{f});
    if (!info.name.starts_with("gguf.") && !info.name.starts_with("mlx.affine")) continue;
    for (const FormatParams& params : variants(FormatId{f}))
      for (const Isa* isa : isas()) {
        if (isa->name == "scalar") continue;
        const PackedWeight weight = random_weight(FormatId{f}, {1, 256}, params, random);
        EXPECT_EQ(prepare(weight, isa->name).kernel_name().find("derived"), std::string_view::npos)
            << label(weight, isa->name);
      }
  }
}

TEST(Linear, ForcedKernelIsObeyedOrRefused) {
  std::mt19937_64 random(41);
  const PackedWeight weight = random_weight(kFormatId<GgufQ4_0>, {2, 64}, {}, random);
  for (const Isa* isa : isas()) {
    const Forced forced(isa->name);
    EXPECT_TRUE(Linear::prepare(weight)->kernel_name().ends_with(isa->name));
    EXPECT_EQ(ops().name, isa->name);
  }
  const Forced forced("sse9");
  const auto refused = Linear::prepare(weight);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  std::string names;
  for (const Isa* isa : isas()) names += (names.empty() ? "" : ", ") + std::string(isa->name);
  EXPECT_EQ(
      refused.error().message,
      "kernel.prepare: PACKSTONE_FORCE_KERNEL: got sse9, need one of " + names + " on this CPU");
}

TEST(Linear, EmptyShapesAreNoWork) {
  std::mt19937_64 random(43);
  const Linear no_rows = *Linear::prepare(random_weight(kFloat32, {0, 8}, {}, random));
  EXPECT_TRUE(run(no_rows, random_floats(8, random), 1, 2).empty());
  const Linear no_cols = *Linear::prepare(random_weight(kFloat32, {3, 0}, {}, random));
  EXPECT_EQ(run(no_cols, {}, 1, 2), std::vector<float>(3, 0.0f));
  EXPECT_EQ(run(no_cols, {}, 2, 2), std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace packstone
