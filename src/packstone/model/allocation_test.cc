// Proves that forward does not allocate once a cache has room: every call of operator new in this
// program is counted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "packstone/model/model.h"
#include "packstone/model/test_checkpoint.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}

void* operator new(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace packstone {
namespace {

TEST(Allocation, ForwardNeedsNoneWhileTheCacheHasRoom) {
  ThreadPool pool(2);
  for (const Architecture architecture : testing::kAllArchitectures) {
    const ModelConfig config = testing::tiny_config(architecture);
    Model model = Model::load(testing::random_checkpoint(config, 1), pool).value();
    auto cache = model.new_cache(300).value();
    KvCache* caches[] = {cache.get()};
    std::vector<float> logits(static_cast<std::size_t>(2 * config.vocab));
    const auto push = [&](std::int64_t count) {
      BatchRow rows[2];
      for (std::int64_t i = 0; i < count; ++i)
        rows[i] = {static_cast<std::int32_t>(5 + i), cache->length() + i, 0, true};
      return model
          .forward(std::span(rows).first(static_cast<std::size_t>(count)), caches,
                   std::span(logits).first(static_cast<std::size_t>(count * config.vocab)))
          .has_value();
    };
    ASSERT_TRUE(push(1));  // the cache's first step
    EXPECT_EQ(cache->bytes(), 2u * 2 * 2 * 16 * 4 * 256);
    const std::int64_t before = allocations;
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(push(1 + i % 2));
    EXPECT_EQ(allocations - before, 0);
    while (cache->length() < 300) ASSERT_TRUE(push(1));
    EXPECT_EQ(cache->bytes(), 2u * 2 * 2 * 16 * 4 * 300);
  }
}

}  // namespace
}  // namespace packstone
