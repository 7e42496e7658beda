// SIGINT and SIGTERM as a flag.
#pragma once

#include <atomic>

namespace packstone::cli {

// watch_interrupts() starts the thread that waits for SIGINT and SIGTERM. The first sets the flag
// that it returns; commands poll it and stop with nothing half written. The second removes
// unfinished outputs and ends the process with 130 at once. SIGPIPE becomes a failed write.
// Called once, by main, before any other thread is started.
const std::atomic<bool>& watch_interrupts();

}  // namespace packstone::cli
