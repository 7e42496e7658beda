// Proves what apply_experts computes for each position, and that no position sees another:
// contracts B37 to B42.
#include "packstone/format/registry.h"
#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::doubles;
using testing::random_array;
using testing::same_values;
using testing::test_pool;

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// A stack of `experts` matrices of a format, as a list or below each other.
Weight experts_of(const testing::FormatCase& one, std::int64_t experts, std::mt19937_64& random) {
  std::vector<PackedWeight> list;
  for (std::int64_t i = 0; i < experts; ++i) list.push_back(testing::random_packed(one, random));
  return Weight::from(std::move(list), std::vector<std::int64_t>{experts}).value();
}

Weight q4_k_experts(std::int64_t experts, std::int64_t n, std::mt19937_64& random) {
  return Weight::from(testing::random_weight(kFormatId<GgufQ4_K>, {experts * n, 256}, {}, random),
                      std::vector<std::int64_t>{experts})
      .value();
}

Array rows(const Array& array, std::int64_t first, std::int64_t count) {
  const std::size_t row = static_cast<std::size_t>(array.dims.back()) * value_bytes(array.type);
  Array part{array.type, {count, array.dims.back()}, {}};
  const auto begin = array.bytes.begin() + first * static_cast<std::ptrdiff_t>(row);
  part.bytes.assign(begin, begin + count * static_cast<std::ptrdiff_t>(row));
  return part;
}

TEST(TypedWeight, B37_EveryLayoutMultipliesEachRowWithItsExpert) {
  std::mt19937_64 random(37);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = experts_of(one, 3, random);
    const Array values = dequant(w, ValueType::kF64, test_pool()).value();
    for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kF16}) {
      const Array x = random_array({2, 2, one.shape.cols}, type, random);
      const std::vector<std::int64_t> ids = {2, 0, 2, 1};
      const Array y = apply_experts(w, {{2, 2}, ids}, x.view(), test_pool()).value();
      ASSERT_EQ(y.dims, (Dims{2, 2, one.shape.rows}));
      for (std::int64_t p = 0; p < 4; ++p)
        EXPECT_TRUE(testing::holds_bound(
            rows(values, ids[static_cast<std::size_t>(p)] * one.shape.rows, one.shape.rows),
            rows(x, p, 1), rows(y, p, 1), type == ValueType::kF64))
            << testing::text_of(one) << " position " << p;
    }
  }
}

TEST(TypedWeight, B38_PositionsOutOfRangeAreZerosWhateverXHolds) {
  std::mt19937_64 random(38);
  const Weight w = q4_k_experts(3, 5, random);
  for (const float special : {INFINITY, std::numeric_limits<float>::quiet_NaN(), 1.0f}) {
    std::vector<float> values(6 * 256, special);
    const Array x = testing::array_of({6, 256}, values);
    const std::vector<std::int64_t> ids = {-1, 3, kMin, kMax, 4, -3};
    const Array y = apply_experts(w, {{6}, ids}, x.view(), test_pool()).value();
    for (const std::byte byte : y.bytes) EXPECT_EQ(byte, std::byte{0});
  }
}

TEST(TypedWeight, B39_ARowsBitsDependOnItsOwnRowAndExpertAlone) {
  std::mt19937_64 random(39);
  const Weight w = q4_k_experts(4, 37, random);
  const Array x = random_array({9, 256}, ValueType::kF32, random);
  std::vector<std::int64_t> ids = {0, 1, 2, 3, 0, 1, 2, 3, 1};
  const Array expected = apply_experts(w, {{9}, ids}, x.view(), test_pool()).value();
  const std::uint64_t seed = 39;
  std::mt19937_64 shuffle(seed);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::int64_t> other = ids;
    for (std::size_t p = 1; p < other.size(); ++p)
      other[p] = trial % 5 == 0 ? -1 : static_cast<std::int64_t>(shuffle() % 6) - 1;
    const Array y = apply_experts(w, {{9}, other}, x.view(), test_pool()).value();
    EXPECT_TRUE(same_values(rows(y, 0, 1), rows(expected, 0, 1))) << "seed " << seed;
    for (std::size_t p = 0; p < ids.size(); ++p) {
      const auto at = static_cast<std::int64_t>(p);
      if (other[p] != ids[p]) continue;
      EXPECT_TRUE(same_values(rows(y, at, 1), rows(expected, at, 1))) << "seed " << seed;
    }
  }
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(same_values(apply_experts(w, {{9}, ids}, x.view(), pool).value(), expected));
  }
}

TEST(TypedWeight, B39_ManyRowsOfOneExpertHaveTheBitsOfOne) {
  std::mt19937_64 random(40);
  const Weight w = q4_k_experts(2, 9, random);
  const Array x = random_array({600, 256}, ValueType::kF32, random);
  const std::vector<std::int64_t> ids(600, 1);
  const Array all = apply_experts(w, {{600}, ids}, x.view(), test_pool()).value();
  for (const std::int64_t p : {0, 255, 256, 599}) {
    const Array one =
        apply_experts(w, {{1}, std::span(ids).first(1)}, rows(x, p, 1).view(), test_pool()).value();
    EXPECT_TRUE(same_values(rows(all, p, 1), one)) << p;
  }
}

TEST(TypedWeight, B41_RefusesShapesThatDoNotFit) {
  std::mt19937_64 random(41);
  const Weight w = q4_k_experts(3, 5, random);
  const std::vector<std::int64_t> ids(6);
  const auto refused = [&](const Weight& weight, Dims ids_dims, Dims x_dims) {
    const Array x = zeros(ValueType::kF32, std::move(x_dims));
    const auto count = static_cast<std::size_t>(*element_count(ids_dims));
    const auto y =
        apply_experts(weight, {ids_dims, std::span(ids).first(count)}, x.view(), test_pool());
    return !y && y.error().code == ErrorCode::kInvalidInput &&
           y.error().message.starts_with("weight.apply_experts: ");
  };
  EXPECT_TRUE(
      refused(Weight::q4_k(testing::random_bytes({3, 144}, random)).value(), {3}, {3, 256}));
  EXPECT_TRUE(refused(w, {3}, {256}));           // rank
  EXPECT_TRUE(refused(w, {3}, {3, 1, 256}));     // rank
  EXPECT_TRUE(refused(w, {3}, {3, 255}));        // k
  EXPECT_TRUE(refused(w, {3}, {2, 256}));        // 2 against 3
  EXPECT_TRUE(refused(w, {2, 3}, {3, 3, 256}));  // 3 against 2
  EXPECT_TRUE(refused(w, {1}, {3, 256}));        // x broadcasts to ids, not ids to x
  const Array x = zeros(ValueType::kF32, {3, 256});
  EXPECT_FALSE(apply_experts(w, {{3}, std::span(ids).first(2)}, x.view(), test_pool()).has_value());
  EXPECT_TRUE(apply_experts(w, {{0}, {}}, zeros(ValueType::kF32, {0, 256}).view(), test_pool())
                  .has_value());
}

TEST(TypedWeight, B42_BroadcastRowsGiveTheBitsOfRepeatedRows) {
  std::mt19937_64 random(42);
  const Weight w = q4_k_experts(4, 6, random);
  const Array x = random_array({3, 1, 256}, ValueType::kF32, random);
  const std::vector<std::int64_t> ids = {0, 3, 1, 1, 2, -1};
  Array repeated{ValueType::kF32, {3, 2, 256}, {}};
  for (std::int64_t token = 0; token < 3; ++token)
    for (int top = 0; top < 2; ++top) {
      const Array row = rows(x, token, 1);
      repeated.bytes.insert(repeated.bytes.end(), row.bytes.begin(), row.bytes.end());
    }
  EXPECT_TRUE(same_values(apply_experts(w, {{3, 2}, ids}, x.view(), test_pool()).value(),
                          apply_experts(w, {{3, 2}, ids}, repeated.view(), test_pool()).value()));
}

}  // namespace
}  // namespace packstone
