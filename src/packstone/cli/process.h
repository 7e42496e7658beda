// What the kernel knows of this process and machine.
#pragma once

#include <cstdint>
#include <string>

namespace packstone::cli {

// The largest resident size so far, in bytes (VmHWM of /proc/self/status); 0 where there is none.
std::uint64_t peak_rss_bytes();
// The resident size now, in bytes (VmRSS); 0 where there is none.
std::uint64_t rss_bytes();
// The processor's name and the number of usable threads, as one line.
std::string machine_name();

}  // namespace packstone::cli
