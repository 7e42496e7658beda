// Columns of act-order weights are put in the order of their groups, values unchanged, so that
// layouts without group numbers take them (ACT-03); parts of a sorted weight stand alone (ACT-01).
#include "packstone/transcode/permute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/transcode/test_layouts.h"
#include "packstone/transcode/test_words.h"

namespace packstone::testing {
namespace {

// Every group with its own number of columns, in random order.
std::vector<std::uint32_t> shuffled_groups(std::int64_t cols, std::int64_t width,
                                           std::mt19937_64& random) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::uint32_t>(static_cast<std::int64_t>(i) / width);
  std::ranges::shuffle(numbers, random);
  return numbers;
}

// The weight with these group numbers.
PackedWeight with_groups(const PackedWeight& weight, std::span<const std::uint32_t> numbers) {
  FormatParams params = weight.params();
  params.act_order = true;
  OwnedWeight owned = *OwnedWeight::allocate(weight.id(), weight.shape(), params);
  const int index = weight.format().index_plane;
  for (int i = 0; i < weight.plane_count(); ++i)
    if (i != index)
      std::ranges::copy(weight.plane(i), owned.planes[static_cast<std::size_t>(i)].begin());
  std::memcpy(owned.planes[static_cast<std::size_t>(index)].data(), numbers.data(),
              numbers.size_bytes());
  return *std::move(owned).release("act-order");
}

void expect_permuted(const PackedWeight& source, const PackedWeight& sorted,
                     std::span<const std::int32_t> order) {
  ASSERT_FALSE(sorted.params().act_order);
  const std::vector<float> a = decoded(source), b = decoded(sorted);
  const auto cols = static_cast<std::size_t>(source.shape().cols);
  for (std::size_t i = 0; i < b.size(); ++i) {
    const float want = a[i / cols * cols + static_cast<std::size_t>(order[i % cols])];
    ASSERT_TRUE(std::bit_cast<std::uint32_t>(want) == std::bit_cast<std::uint32_t>(b[i]))
        << "element " << i;
  }
}

// ACT-03, every layout with group numbers, every group size, short last groups, any thread count.
TEST(Permute, Act03EveryLayoutWithGroupNumbersIsSortedExactly) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  ThreadPool one(1), three(3);
  int tried = 0;
  for (const Shape shape : {Shape{32, 128}, {96, 160}, {160, 64}})
    for (const Layout& layout : layouts_at(shape)) {
      if (!layout.params.act_order) continue;
      SCOPED_TRACE(show(layout));
      const PackedWeight plain = random_weight_of(layout, shape, Recipe::kAdversarial, random);
      const std::int64_t width = group_cols(layout.id, layout.params);
      const PackedWeight source = with_groups(plain, shuffled_groups(shape.cols, width, random));
      const auto order = sorted_columns(source, "t");
      ASSERT_TRUE(order) << order.error().message;
      const auto sorted = permute_columns(source, *order, one);
      ASSERT_TRUE(sorted) << sorted.error().message;
      expect_permuted(source, *sorted, *order);
      EXPECT_TRUE(same_planes(*sorted, *permute_columns(source, *order, three)));
      for (std::size_t i = 1; i < order->size(); ++i) {  // a stable sort
        const bool first = static_cast<std::int64_t>(i) % width == 0;
        ASSERT_TRUE(first || (*order)[i - 1] < (*order)[i]) << i;
      }
      ++tried;
    }
  EXPECT_GE(tried, 60);
}

// Contiguous groups under other numbers are sorted as any others.
TEST(Permute, RenamedGroupsAreSorted) {
  std::mt19937_64 random(3);
  FormatParams params{32};
  params.act_order = true;
  const Shape shape{16, 128};
  const PackedWeight plain =
      random_weight_of({kFormatId<GptqV2<4>>, params}, shape, Recipe::kPlain, random);
  std::vector<std::uint32_t> numbers(128);
  for (std::uint32_t i = 0; i < 128; ++i) numbers[i] = 3 - i / 32;
  const PackedWeight source = with_groups(plain, numbers);
  const auto order = sorted_columns(source, "t");
  ASSERT_TRUE(order);
  EXPECT_EQ((*order)[0], 96);
  EXPECT_EQ((*order)[127], 31);
  ThreadPool pool(2);
  expect_permuted(source, *permute_columns(source, *order, pool), *order);
}

// ACT-03: groups that do not fill their places are refused with the group, and only orders that put
// groups in place are taken.
TEST(Permute, Act03UnevenGroupsAndOtherOrdersAreRefused) {
  std::mt19937_64 random(4);
  FormatParams params{32};
  params.act_order = true;
  const Shape shape{16, 128};
  const PackedWeight plain =
      random_weight_of({kFormatId<Gptq<4>>, params}, shape, Recipe::kPlain, random);
  std::vector<std::uint32_t> numbers = shuffled_groups(128, 32, random);
  const PackedWeight even = with_groups(plain, numbers);
  std::ranges::replace(numbers, 3u, 1u);
  const auto uneven = sorted_columns(with_groups(plain, numbers), "down");
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().code, ErrorCode::kNotRepresentable);
  for (const char* words : {"down", "64 columns of group 1", "need 32"})
    EXPECT_NE(uneven.error().message.find(words), std::string::npos) << uneven.error().message;

  ThreadPool pool(1);
  const std::vector<std::int32_t> order = *sorted_columns(even, "t");
  const auto refused = [&](const PackedWeight& weight, std::vector<std::int32_t> other) {
    const auto made = permute_columns(weight, other, pool);
    return !made && made.error().code == ErrorCode::kInvalidInput;
  };
  std::vector<std::int32_t> other = order;
  std::swap(other[0], other[64]);
  EXPECT_TRUE(refused(even, other));
  other = order, other[1] = other[0];
  EXPECT_TRUE(refused(even, other));
  other = order, other[0] = -1;
  EXPECT_TRUE(refused(even, other));
  other = order, other[0] = 128;
  EXPECT_TRUE(refused(even, other));
  other.pop_back();
  EXPECT_TRUE(refused(even, other));
  EXPECT_TRUE(refused(
      random_weight_of({kFormatId<MlxAffine<4>>, {32}}, shape, Recipe::kPlain, random), order));
  FormatParams trivial{32};
  EXPECT_TRUE(
      sorted_columns(random_weight_of({kFormatId<Gptq<4>>, trivial}, shape, Recipe::kPlain, random),
                     "t")
          ->empty());
}

// The planes of columns [first, first + 128) of a weight of 256, input-major, as a weight.
Result<PackedWeight> half_of(const PackedWeight& weight, std::size_t half) {
  std::vector<ByteSpan> planes;
  for (int i = 0; i < weight.plane_count(); ++i) {
    const ByteSpan plane = weight.plane(i);
    planes.push_back(plane.subspan(half * plane.size() / 2, plane.size() / 2));
  }
  // The numbers of the first half: those that a part of its own has.
  planes[3] = weight.plane(3).first(weight.plane(3).size() / 2);
  return PackedWeight::bind(weight.id(), {weight.shape().rows, 128}, weight.params(),
                            std::move(planes), weight.owner(), "half");
}

// y = W x of columns [first, ...) of x.
std::vector<double> product(const PackedWeight& weight, std::span<const double> x) {
  const std::vector<float> values = decoded(weight);
  std::vector<double> y(static_cast<std::size_t>(weight.shape().rows));
  for (std::size_t i = 0; i < values.size(); ++i)
    y[i / x.size()] += static_cast<double>(values[i]) * x[i % x.size()];
  return y;
}

// ACT-01: K = 256, groups of 64, shuffled. The halves of the sorted weight hold whole groups and
// add up to the whole; a half of the unsorted weight is refused, as its numbers are the whole's.
TEST(Permute, Act01HalvesOfASortedWeightAddUp) {
  std::mt19937_64 random(5);
  const PackedWeight source = with_groups(
      weight_of(
          kFormatId<Gptq<4>>, {32, 256}, {64},
          [&](std::int64_t, std::int64_t) { return static_cast<std::uint32_t>(random() % 16); },
          [](std::int64_t row, std::int64_t group) {
            return GroupValues{static_cast<float>(1 + row % 3 + group), kNoOffset,
                               static_cast<std::int32_t>(3 + group)};
          }),
      shuffled_groups(256, 64, random));
  EXPECT_FALSE(half_of(source, 0));
  const std::vector<std::int32_t> order = *sorted_columns(source, "t");
  ThreadPool pool(2);
  const PackedWeight sorted = *permute_columns(source, order, pool);
  std::vector<double> x(256), permuted(256);
  for (double& one : x) one = static_cast<double>(random() % 64);
  for (std::size_t i = 0; i < 256; ++i) permuted[i] = x[static_cast<std::size_t>(order[i])];
  const auto low = half_of(sorted, 0), high = half_of(sorted, 1);
  ASSERT_TRUE(low && high);
  const auto whole = product(source, x);
  const auto a = product(*low, std::span(permuted).first(128));
  const auto b = product(*high, std::span(permuted).last(128));
  for (std::size_t row = 0; row < whole.size(); ++row) EXPECT_EQ(a[row] + b[row], whole[row]);
}

// ACT-03: sorted weights move where weights with act-order are refused, to the values in order.
TEST(Permute, Act03SortedWeightsMoveToLayoutsWithoutGroupNumbers) {
  std::mt19937_64 random(6);
  ThreadPool pool(2);
  const PackedWeight source = with_groups(
      weight_of(
          kFormatId<Gptq<4>>, {256, 256}, {64},
          [&](std::int64_t, std::int64_t) { return static_cast<std::uint32_t>(random() % 16); },
          [](std::int64_t row, std::int64_t group) {
            return GroupValues{static_cast<float>(1 << (row + group) % 5), kNoOffset, 8};
          }),
      shuffled_groups(256, 64, random));
  const std::vector<std::int32_t> order = *sorted_columns(source, "t");
  const PackedWeight sorted = *permute_columns(source, order, pool);
  for (const char* name :
       {"mlx-affine", "gguf:Q4_1", "gguf:Q4_0", "awq-gemm", "ct-pack", "marlin"}) {
    const auto id = find_layout(name, 4);
    ASSERT_TRUE(id) << name;
    EXPECT_EQ(plan_transcode(source, {*id}, pool).verdict, Verdict::kRefused) << name;
    const TranscodePlan plan = plan_transcode(sorted, {*id}, pool);
    ASSERT_NE(plan.verdict, Verdict::kRefused) << name << plan.reason;
    expect_permuted(source, *transcode(sorted, plan, {*id}, {}, pool), order);
  }
}

}  // namespace
}  // namespace packstone::testing
