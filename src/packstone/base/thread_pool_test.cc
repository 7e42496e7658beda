// Proves that a pool covers every index exactly once, in ranges that start at multiples of the
// grain, for any number of threads and after sleeping; and that the CPU budget is read from
// cgroups.
#include "packstone/base/thread_pool.h"

#include <chrono>
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
