#include "packstone/cli/process.h"

#include <fmt/format.h>

#include <fstream>
#include <string_view>

#include "packstone/base/thread_pool.h"

namespace packstone::cli {
namespace {

// The text after `key` on its line of a file like /proc/self/status.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const std::size_t start = line.find_first_not_of(" \t:", key.size());
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

std::uint64_t status_bytes(std::string_view key) {
  std::uint64_t kilobytes = 0;
  for (char c : value_of("/proc/self/status", key)) {
    if (c < '0' || c > '9') break;
    kilobytes = kilobytes * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return kilobytes * 1024;
}

}  // namespace

std::uint64_t peak_rss_bytes() {
  return status_bytes("VmHWM");
}
std::uint64_t rss_bytes() {
  return status_bytes("VmRSS");
}

std::string machine_name() {
  std::string model = value_of("/proc/cpuinfo", "model name");
  if (model.empty()) model = "unknown processor";
  return fmt::format("{}, {} threads", model, default_thread_count());
}

}  // namespace packstone::cli
