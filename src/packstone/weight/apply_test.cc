// Proves the bound, the shapes and the bits of products with every layout: contracts B29 to B36.
#include <cstdlib>

#include "packstone/kernel/isa/isa.h"
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::array_of;
using testing::bytes_of;
using testing::doubles;
using testing::q8_0_of;
using testing::random_array;
using testing::same_values;
using testing::test_pool;

constexpr ValueType kTypes[] = {ValueType::kF32, ValueType::kF64, ValueType::kBF16,
                                ValueType::kF16};

// Names an instruction set for the kernels while it lives.
class ForcedKernel {
 public:
  explicit ForcedKernel(std::string_view name) {
    setenv("PACKSTONE_FORCE_KERNEL", std::string(name).c_str(), 1);
  }
  ~ForcedKernel() { unsetenv("PACKSTONE_FORCE_KERNEL"); }
};

TEST(TypedWeight, B29_EveryLayoutHoldsTheBoundAtEveryType) {
  std::mt19937_64 random(29);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random);
    const Array values = dequant(w, ValueType::kF64, test_pool()).value();
    for (const ValueType type : kTypes)
      for (const std::int64_t m : {1, 3, 9}) {
        const Array x = random_array({m, one.shape.cols}, type, random);
        const Array y = apply(w, x.view(), test_pool()).value();
        EXPECT_EQ(y.type, type);
        EXPECT_EQ(y.dims, (Dims{m, one.shape.rows}));
        EXPECT_TRUE(testing::holds_bound(values, x, y, type == ValueType::kF64))
            << testing::text_of(one) << " " << value_type_name(type) << " m " << m;
      }
  }
}

TEST(TypedWeight, B30_LeadingAxesBroadcastLikeMatmul) {
  std::mt19937_64 random(30);
  struct Case {
    Dims w, x, y;
  };
  const Case cases[] = {
      {{5, 64}, {64}, {5}},
      {{5, 64}, {3, 64}, {3, 5}},
      {{2, 5, 64}, {64}, {2, 5}},
      {{5, 64}, {2, 3, 64}, {2, 3, 5}},
      {{2, 5, 64}, {3, 64}, {2, 3, 5}},
      {{2, 5, 64}, {2, 3, 64}, {2, 3, 5}},
      {{2, 1, 5, 64}, {4, 3, 64}, {2, 4, 3, 5}},
      {{1, 5, 64}, {4, 3, 64}, {4, 3, 5}},
      {{4, 5, 64}, {2, 1, 3, 64}, {2, 4, 3, 5}},
      {{0, 5, 64}, {3, 64}, {0, 3, 5}},
      {{2, 5, 64}, {2, 0, 64}, {2, 0, 5}},
      {{2, 0, 64}, {2, 3, 64}, {2, 3, 0}},
      {{2, 5, 0}, {2, 3, 0}, {2, 3, 5}},
  };
  for (const Case& one : cases) {
    const Weight w = q8_0_of(one.w, random);
    const Array x = random_array(one.x, ValueType::kF32, random);
    const Array y = apply(w, x.view(), test_pool()).value();
    ASSERT_EQ(y.dims, one.y) << dims_text(one.w) << dims_text(one.x);
    // Each result row against the product with one matrix alone.
    const std::int64_t n = w.n(), k = w.k();
    const std::size_t vector = one.x.size() == 1 ? 1 : 0;
    const std::int64_t m = vector ? 1 : one.x[one.x.size() - 2];
    const Dims lead(one.y.begin(), one.y.end() - (vector ? 1 : 2));
    const std::int64_t batches = *element_count(lead);
    const auto index_of = [&](std::int64_t batch, const Dims& dims, std::size_t tail) {
      std::int64_t index = 0, step = 1;
      for (std::size_t i = lead.size(); i-- > 0; batch /= lead[i]) {
        const std::size_t from_right = lead.size() - i;
        if (from_right + tail > dims.size()) continue;
        const std::int64_t axis = dims[dims.size() - tail - from_right];
        index += (axis == 1 ? 0 : batch % lead[i]) * step;
        step *= axis;
      }
      return index;
    };
    const Array values = dequant(w, ValueType::kF32, test_pool()).value();
    for (std::int64_t b = 0; b < batches && m * n * k > 0; ++b) {
      const std::int64_t matrix = index_of(b, one.w, 2);
      const std::int64_t row = vector ? 0 : index_of(b, one.x, 2) * m;
      const auto part = [&](const Array& from, std::int64_t at, std::int64_t count, Dims dims) {
        const auto all = from.as<float>();
        return array_of(std::move(dims),
                        std::vector<float>(all.begin() + at, all.begin() + at + count));
      };
      EXPECT_TRUE(testing::holds_bound(part(values, matrix * n * k, n * k, {n, k}),
                                       part(x, row * k, m * k, {m, k}),
                                       part(y, b * m * n, m * n, {m, n}), false))
          << dims_text(one.w) << dims_text(one.x) << b;
    }
    if (k != 0) continue;
    for (const double value : doubles(y)) EXPECT_TRUE(value == 0 && !std::signbit(value));
  }
}

TEST(TypedWeight, B31_RefusesShapesThatDoNotFit) {
  std::mt19937_64 random(31);
  const Weight w = q8_0_of({2, 5, 64}, random);
  const auto refused = [&](Dims dims, std::size_t bytes) {
    const std::vector<std::byte> data(bytes);
    const auto y = apply(w, {ValueType::kF32, std::move(dims), data}, test_pool());
    return !y && y.error().code == ErrorCode::kInvalidInput &&
           y.error().message.starts_with("weight.apply: x: got ");
  };
  EXPECT_TRUE(refused({}, 4));                   // 0-d
  EXPECT_TRUE(refused({63}, 4 * 63));            // k
  EXPECT_TRUE(refused({3, 65}, 4 * 3 * 65));     // k
  EXPECT_TRUE(refused({3, 2, 64}, 4 * 6 * 64));  // 3 against 2
  EXPECT_TRUE(refused({2, 3, 64}, 4 * 6 * 63));  // bytes
  EXPECT_TRUE(refused({-1, 64}, 0));
  EXPECT_TRUE(refused({std::int64_t{1} << 40, 0, std::int64_t{1} << 40, 64}, 0));
}

TEST(TypedWeight, B31_AKernelThatCannotRunIsRefusedNotReplaced) {
  std::mt19937_64 random(31);
  const Weight w = q8_0_of({5, 64}, random);
  const Array x = random_array({64}, ValueType::kF32, random);
  const ForcedKernel forced("none-such");
  const auto y = apply(w, x.view(), test_pool());
  ASSERT_FALSE(y.has_value());
  EXPECT_EQ(y.error().code, ErrorCode::kUnsupported);
}

// One at a column, zero elsewhere.
Array unit_vector(ValueType type, std::int64_t cols, std::int64_t col) {
  std::vector<float> values(static_cast<std::size_t>(cols));
  values[static_cast<std::size_t>(col)] = 1;
  return array_of({cols}, values, type);
}

TEST(TypedWeight, B34_AUnitVectorGivesTheDequantColumn) {
  std::mt19937_64 random(34);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random);
    const auto cols = static_cast<std::size_t>(one.shape.cols);
    const Array values = dequant(w, ValueType::kF32, test_pool()).value();
    for (const std::int64_t col : {std::int64_t{0}, std::int64_t{37}, one.shape.cols - 1}) {
      // A sum of zeros is +0: adding +0 leaves every other value as it is.
      std::vector<float> column;
      for (std::int64_t r = 0; r < one.shape.rows; ++r)
        column.push_back(
            values.as<float>()[static_cast<std::size_t>(r) * cols + static_cast<std::size_t>(col)] +
            0.0f);
      for (const ValueType type : kTypes) {
        const Array x = unit_vector(type, one.shape.cols, col);
        const std::vector<double> y = doubles(apply(w, x.view(), test_pool()).value());
        const std::vector<double> want = doubles(array_of({one.shape.rows}, column, type));
        for (std::size_t r = 0; r < y.size(); ++r) {
          // 0 times infinity is NaN.
          if (!std::ranges::all_of(values.as<float>().subspan(r * cols, cols),
                                   [](float value) { return std::isfinite(value); }))
            continue;
          ASSERT_EQ(std::bit_cast<std::uint64_t>(y[r]), std::bit_cast<std::uint64_t>(want[r]))
              << testing::text_of(one) << " " << value_type_name(type) << " row " << r;
        }
      }
    }
  }
}

TEST(TypedWeight, B35_NoPartialSumIsScaledSoNoneOverflows) {
  // Quants of 127 with inputs of 1e37: the unscaled partial sum of a block would be infinite.
  std::vector<std::byte> blocks(2 * 34, std::byte{127});
  for (const std::size_t at : {0u, 34u}) store_le(blocks.data() + at, std::uint16_t{0x0001});
  const Weight w = Weight::q8_0(bytes_of({1, 68}, blocks)).value();
  const Array x = array_of({1, 64}, std::vector<float>(64, 1e37f));
  const Array y = apply(w, x.view(), test_pool()).value();
  EXPECT_TRUE(std::isfinite(y.as<float>()[0]));
  EXPECT_TRUE(testing::holds_bound(dequant(w, ValueType::kF64, test_pool()).value(), x, y, false));
}

TEST(TypedWeight, B36_SameBitsForEveryRunThreadCountAndInstructionSet) {
  std::mt19937_64 random(36);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random);
    for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kBF16}) {
      const Array x = random_array({5, one.shape.cols}, type, random);
      const Array expected = apply(w, x.view(), test_pool()).value();
      for (const int threads : {1, 2, 4}) {
        ThreadPool pool(threads);
        EXPECT_TRUE(same_values(apply(w, x.view(), pool).value(), expected));
      }
      for (const Isa* isa : isas()) {
        const ForcedKernel forced(isa->name);
        EXPECT_TRUE(same_values(apply(w, x.view(), test_pool()).value(), expected))
            << testing::text_of(one) << " " << isa->name;
      }
      // One row at a time.
      for (std::int64_t i = 0; i < 5; ++i) {
        const auto bytes = static_cast<std::size_t>(one.shape.cols) * value_bytes(type);
        const Array y =
            apply(w,
                  {type,
                   {one.shape.cols},
                   ByteSpan(x.bytes).subspan(static_cast<std::size_t>(i) * bytes, bytes)},
                  test_pool())
                .value();
        EXPECT_TRUE(std::ranges::equal(
            y.bytes, ByteSpan(expected.bytes)
                         .subspan(static_cast<std::size_t>(i) * y.bytes.size(), y.bytes.size())));
      }
    }
  }
}

TEST(TypedWeight, B36_NanAndInfinityOfXPropagate) {
  std::mt19937_64 random(37);
  const Weight w = q8_0_of({6, 64}, random);
  const std::vector<double> values = doubles(dequant(w, ValueType::kF64, test_pool()).value());
  for (const ValueType type : kTypes)
    for (const float special : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
      Array x = random_array({2, 64}, type, random);
      std::vector<float> row(64);
      load_f32(x.bytes.data(), type, row);
      row[9] = special;
      if (type == ValueType::kF64)
        x.as<double>()[9] = special;
      else
        store_values(row, type, x.bytes.data());
      const std::vector<double> y = doubles(apply(w, x.view(), test_pool()).value());
      for (std::size_t r = 0; r < 6; ++r) {
        const double factor = values[r * 64 + 9];
        if (std::isnan(special) || factor == 0)
          EXPECT_TRUE(std::isnan(y[r]));
        else
          EXPECT_EQ(y[r], factor * static_cast<double>(special));
        EXPECT_TRUE(std::isfinite(y[6 + r])) << "the other row";
      }
    }
}

TEST(TypedWeight, B36_XMayLieAtAnyAddress) {
  std::mt19937_64 random(38);
  const Weight w = q8_0_of({6, 64}, random);
  for (const ValueType type : kTypes) {
    const Array x = random_array({64}, type, random);
    std::vector<std::byte> moved(x.bytes.size() + 1);
    std::ranges::copy(x.bytes, moved.begin() + 1);
    EXPECT_TRUE(same_values(apply(w, {type, {64}, ByteSpan(moved).subspan(1)}, test_pool()).value(),
                            apply(w, x.view(), test_pool()).value()));
  }
}

}  // namespace
}  // namespace packstone
