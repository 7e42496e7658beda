// Proves that products need memory for their result and a panel, never for the weight: every call
// of operator new in this program is counted, with its size.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "packstone/format/registry.h"
#include "packstone/weight/test_weight.h"

namespace {

std::atomic<std::int64_t> held = 0, peak = 0;

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const std::int64_t now = held += static_cast<std::int64_t>(malloc_usable_size(memory));
  std::int64_t highest = peak;
  while (now > highest && !peak.compare_exchange_weak(highest, now)) {
  }
  return memory;
}

void uncounted(void* memory) {
  if (memory != nullptr) held -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(std::malloc(size == 0 ? 1 : size));
}
void* operator new(std::size_t size, std::align_val_t align) {
  const auto step = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(step, (size + step) / step * step));
}
void* operator new[](std::size_t size, std::align_val_t align) {
  return operator new(size, align);
}
void operator delete(void* memory) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  uncounted(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  uncounted(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  uncounted(memory);
}

namespace packstone {
namespace {

using testing::random_array;
using testing::test_pool;

// Bytes that a call needs at once, beyond what was held before.
template <class Call>
std::int64_t peak_of(Call&& call) {
  const std::int64_t before = held;
  peak = before;
  call();
  return peak - before;
}

TEST(TypedWeight, B32_ApplyNeedsNoMemoryThatGrowsWithTheWeight) {
  std::mt19937_64 random(32);
  for (const testing::FormatCase& one : testing::all_formats()) {
    for (const ValueType type : {ValueType::kF32, ValueType::kF64, ValueType::kF16}) {
      const Array x = random_array({1, one.shape.cols}, type, random);
      std::int64_t needed[2] = {};
      for (const int scale : {0, 1}) {
        const Shape shape{one.shape.rows * (scale == 0 ? 1 : 16), one.shape.cols};
        if (layout_rule(one.id, shape, one.params) != nullptr) continue;
        const Weight w =
            Weight::from(testing::random_packed({one.id, one.params, shape}, random)).value();
        needed[scale] = peak_of([&] { ASSERT_TRUE(apply(w, x.view(), test_pool()).has_value()); });
        // The result, at the type of the sum and at its own.
        needed[scale] -= shape.rows * (type == ValueType::kF64 ? 8 : 8);
      }
      EXPECT_LE(needed[1], needed[0] + 1024) << testing::text_of(one) << value_type_name(type);
    }
  }
}

TEST(TypedWeight, B40_ExpertsNeedNoMemoryThatGrowsWithThem) {
  std::mt19937_64 random(40);
  const Array x = random_array({2, 256}, ValueType::kF32, random);
  std::int64_t needed[2] = {};
  for (const int many : {0, 1}) {
    const std::int64_t experts = many == 0 ? 2 : 128;
    const Weight w =
        Weight::from(testing::random_weight(kFormatId<GgufQ4_K>, {experts * 64, 256}, {}, random),
                     std::vector<std::int64_t>{experts})
            .value();
    const std::vector<std::int64_t> ids = {1, 0};
    needed[many] = peak_of(
        [&] { ASSERT_TRUE(apply_experts(w, {{2}, ids}, x.view(), test_pool()).has_value()); });
    const std::vector<std::int64_t> none = {-1, experts};
    const std::int64_t nothing = peak_of(
        [&] { ASSERT_TRUE(apply_experts(w, {{2}, none}, x.view(), test_pool()).has_value()); });
    EXPECT_LE(nothing, needed[many]);
  }
  EXPECT_LE(needed[1], needed[0] + 1024);
}

TEST(TypedWeight, B43_TakeNeedsMemoryForTheTakenRowsAlone) {
  std::mt19937_64 random(43);
  const Weight w =
      Weight::from(testing::random_weight(kFormatId<GgufQ6_K>, {4096, 256}, {}, random)).value();
  const std::vector<std::int64_t> rows = {9, 4000, 17, 9};
  const std::int64_t needed = peak_of([&] { ASSERT_TRUE(take(w, 0, rows).has_value()); });
  EXPECT_LE(needed, 4 * 210 + 4096);
}

TEST(TypedWeight, B56_GatheredRowsOfXAreHeldOnce) {
  std::mt19937_64 random(56);
  const Weight w =
      Weight::from(testing::random_weight(kFormatId<GgufQ8_0>, {3 * 4, 4096}, {}, random),
                   std::vector<std::int64_t>{3})
          .value();
  const std::vector<std::int64_t> ids(8, 1);
  const Array x = random_array({2, 4, 4096}, ValueType::kF32, random);
  const PlacedArray placed = place_array(x.view(), Placement::cut(2, 1)).value();
  const PlacedIds placed_ids = place_ids({{2, 4}, ids}, Placement::cut(2, 1)).value();
  const std::int64_t whole = peak_of(
      [&] { ASSERT_TRUE(apply_experts(w, {{2, 4}, ids}, x.view(), test_pool()).has_value()); });
  const std::int64_t needed = peak_of(
      [&] { ASSERT_TRUE(apply_experts_placed(w, placed_ids, placed, test_pool()).has_value()); });
  EXPECT_LE(needed, whole + static_cast<std::int64_t>(x.bytes.size()) + 4096);
}

}  // namespace
}  // namespace packstone
