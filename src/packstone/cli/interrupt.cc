#include "packstone/cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "packstone/container/output_file.h"

namespace packstone::cli {
namespace {

constexpr int kExitInterrupted = 130;
std::atomic<bool> interrupted{false};

// A thread may lock and allocate where a handler may not.
void wait_for_signals(sigset_t signals) {
  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    if (!interrupted.exchange(true)) continue;
    remove_unfinished_outputs();
    _exit(kExitInterrupted);
  }
}

}  // namespace

const std::atomic<bool>& watch_interrupts() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(wait_for_signals, signals).detach();
  return interrupted;
}

}  // namespace packstone::cli
