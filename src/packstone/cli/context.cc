#include "packstone/cli/command.h"

namespace packstone::cli {

ThreadPool& Context::pool() {
  if (!pool_) pool_ = std::make_unique<ThreadPool>(threads > 0 ? threads : default_thread_count());
  return *pool_;
}

Status Context::check_cancel(std::string_view command) const {
  if (!cancel.load(std::memory_order_relaxed)) return {};
  return fail(ErrorCode::kCancelled, fmt::format("cli.{}", command), "interrupt", "a signal", "",
              "stopped; no output is left behind");
}

}  // namespace packstone::cli
