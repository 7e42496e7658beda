// What this CPU can do, asked once at run time; and the budget of CPUs this process may use.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace packstone {

// Instruction sets the kernels are written for, named as in kernel lists and messages.
struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA and F16C
  bool avx512 = false;  // AVX-512 F, BW, DQ and VL, with AVX2, FMA and F16C
  bool neon = false;    // AArch64 Advanced SIMD, part of the baseline there
};

// cpu_features(): the features of this CPU that its operating system has switched on.
// Cost: asked once. Errors: none. Threads: safe.
inline const CpuFeatures& cpu_features() {
  static const CpuFeatures features = [] {
    CpuFeatures found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("f16c");
    found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl");
#elif defined(__aarch64__)
    found.neon = true;
#endif
    return found;
  }();
  return features;
}

// cgroup_cpu_quota(self_cgroup, root) is the smallest CPU quota on the way from this process's
// group to the root, rounded up to whole CPUs; nothing when no quota is set. `self_cgroup` is the
// text of /proc/self/cgroup, `root` the mount point /sys/fs/cgroup. Exact: versions 2 (cpu.max) and
// 1 (cpu.cfs_quota_us, cpu.cfs_period_us). Errors: none; unreadable or malformed files set no
// quota.
std::optional<int> cgroup_cpu_quota(std::string_view self_cgroup,
                                    const std::filesystem::path& root);

}  // namespace packstone
