// Proves that a pool covers every index exactly once, in ranges that start at multiples of the
// grain, for any number of threads and after sleeping; and that the CPU budget is read from
// cgroups; and that a pool works with the threads that the system gives.
#include "packstone/base/thread_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "packstone/base/cpu.h"

namespace packstone {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {0, 1, 2, 3, 4, 9}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), std::max(threads, 1));
    for (std::int64_t count : {0, 1, 2, 7, 64, 1000, 4097})
      for (std::int64_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<int> hits(static_cast<std::size_t>(count), 0);
        std::atomic<int> bad{0};
        auto task = [&](std::int64_t begin, std::int64_t end, int worker) {
          if (begin % std::max<std::int64_t>(grain, 1) != 0 || begin >= end) ++bad;
          if (worker < 0 || worker >= pool.size()) ++bad;
          for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
        };
        pool.parallel(count, grain, task);
        EXPECT_EQ(bad, 0);
        for (int hit : hits) ASSERT_EQ(hit, 1) << threads << " " << count << " " << grain;
      }
  }
}

// Whether the process is watched by a sanitizer, which needs address space of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// In a process of its own: room for a few more stacks, then a pool of many threads.
[[noreturn]] void work_with_few_threads() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{100} << 20);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);
  {
    ThreadPool pool(512);
    std::atomic<std::int64_t> sum{0};
    auto task = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) sum += i;
    };
    pool.parallel(1000, 1, task);
    if (pool.size() < 1 || pool.size() >= 512 || sum != 499500) std::_Exit(2);
  }
  std::_Exit(0);
}

TEST(ThreadPool, ThreadsThatTheSystemRefusesAreDoneWithout) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer is at work";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(work_with_few_threads(), ::testing::ExitedWithCode(0), "");
}

// A worker that looked whether to stop before it looked at the event slept for ever when the pool
// was stopped between the two.
TEST(ThreadPool, APoolEndsWheneverItIsStopped) {
  for (int round = 0; round < 5000; ++round) {
    ThreadPool pool(round % 3 == 0 ? 4 : 2);
    if (round % 2 == 0) continue;
    std::atomic<int> sum{0};
    auto task = [&](std::int64_t begin, std::int64_t end, int) {
      sum += static_cast<int>(end - begin);
    };
    pool.parallel(2, 1, task);
    EXPECT_EQ(sum, 2);
  }
}

TEST(ThreadPool, WorkersRunOneRangeAtATime) {
  ThreadPool pool(4);
  std::array<std::atomic<int>, 4> busy{};
  std::atomic<int> bad{0};
  auto task = [&](std::int64_t, std::int64_t, int worker) {
    if (busy[static_cast<std::size_t>(worker)].fetch_add(1) != 0) ++bad;
    busy[static_cast<std::size_t>(worker)].fetch_sub(1);
  };
  for (int round = 0; round < 2000; ++round) pool.parallel(64, 1, task);
  EXPECT_EQ(bad, 0);
}

TEST(ThreadPool, ManyDispatchesWithSleepsBetween) {
  ThreadPool pool(3);
  std::vector<std::int64_t> sums(300, 0);
  auto task = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) sums[static_cast<std::size_t>(i)] += i;
  };
  for (int round = 0; round < 500; ++round) {
    pool.parallel(300, 7, task);
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(sums[i], 500 * static_cast<std::int64_t>(i));
}

TEST(ThreadPool, HugeCountsKeepTheGrain) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> total{0};
  std::atomic<int> bad{0};
  auto task = [&](std::int64_t begin, std::int64_t end, int) {
    if (begin % 3 != 0) ++bad;
    total += end - begin;
  };
  pool.parallel((std::int64_t{1} << 40) + 1, 3, task);
  EXPECT_EQ(total, (std::int64_t{1} << 40) + 1);
  EXPECT_EQ(bad, 0);
}

TEST(CpuBudget, AtLeastOneThread) {
  EXPECT_GE(default_thread_count(), 1);
}

class CgroupFolder {
 public:
  CgroupFolder()
      : path(std::filesystem::temp_directory_path() /
             fmt::format("packstone_cgroup_{}",
                         std::chrono::steady_clock::now().time_since_epoch().count())) {
    std::filesystem::create_directories(path);
  }
  ~CgroupFolder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  std::filesystem::path path;
};

TEST(CpuBudget, ReadsCgroupVersion2) {
  CgroupFolder folder;
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b\n", folder.path), std::nullopt);
  folder.write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b\n", folder.path), std::nullopt);
  folder.write("a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b\n", folder.path), 4);
  folder.write("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b\n", folder.path), 1);
}

TEST(CpuBudget, ReadsCgroupVersion1) {
  CgroupFolder folder;
  folder.write("cpu/x/cpu.cfs_quota_us", "200000\n");
  folder.write("cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota("4:cpuset:/y\n3:cpu,cpuacct:/x\n", folder.path), 2);
  folder.write("cpu/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpu_quota("3:cpu,cpuacct:/x\n", folder.path), std::nullopt);
}

TEST(CpuBudget, NonsenseSetsNoQuota) {
  CgroupFolder folder;
  folder.write("cpu.max", "7");
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", folder.path), std::nullopt);
  folder.write("cpu.max", "x y");
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", folder.path), std::nullopt);
  folder.write("cpu.max", "100 0");
  EXPECT_EQ(cgroup_cpu_quota("0::/\nbroken\n:\n", folder.path), std::nullopt);
}

}  // namespace
}  // namespace packstone
