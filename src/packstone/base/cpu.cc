#include "packstone/base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "packstone/base/thread_pool.h"

namespace packstone {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

// quota / period rounded up, or nothing for "no limit" and for nonsense.
std::optional<int> whole_cpus(std::optional<std::int64_t> quota,
                              std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t cpus = *quota / *period + (*quota % *period != 0);
  return static_cast<int>(std::min<std::int64_t>(cpus, 1 << 20));
}

std::optional<int> group_quota(const std::filesystem::path& group, bool unified) {
  if (!unified)
    return whole_cpus(leading_number(read_text(group / "cpu.cfs_quota_us")),
                      leading_number(read_text(group / "cpu.cfs_period_us")));
  const std::string text = read_text(group / "cpu.max");
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return whole_cpus(leading_number(text), leading_number(std::string_view(text).substr(space + 1)));
}

void lower(std::optional<int>& least, std::optional<int> value) {
  if (value && (!least || *value < *least)) least = value;
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

std::optional<int> cgroup_cpu_quota(std::string_view self_cgroup,
                                    const std::filesystem::path& root) {
  std::optional<int> least;
  std::istringstream lines{std::string(self_cgroup)};
  for (std::string line; std::getline(lines, line);) {  // "id:controllers:/path"
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && !has_controller(controllers, "cpu")) continue;
    const std::filesystem::path mount = unified ? root : root / "cpu";
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (int depth = 0; depth < 256; ++depth) {  // a container sees only the last part of its path
      lower(least, group_quota(mount / group, unified));
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return least;
}

int default_thread_count() {
  int cpus = 1;
#if defined(__linux__)
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 4) {  // more than 1024 CPUs exist
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const std::size_t size = CPU_ALLOC_SIZE(capacity);
    const bool known = sched_getaffinity(0, size, set) == 0;
    if (known) cpus = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    if (known) break;
  }
#endif
  if (const auto quota = cgroup_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup"))
    cpus = std::min(cpus, *quota);
  return std::max(cpus, 1);
}

}  // namespace packstone
