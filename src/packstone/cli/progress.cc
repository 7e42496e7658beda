#include "packstone/cli/progress.h"

#include <algorithm>

namespace packstone::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBarWidth = 30;

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Progress::Progress(Context& context, std::string label, std::uint64_t total)
    : context_(context),
      label_(std::move(label)),
      total_(std::max<std::uint64_t>(total, 1)),
      start_(Clock::now()),
      drawn_(start_) {}

Progress::~Progress() {
  if (!finished_ && context_.terminal) context_.err << "\r\033[K" << std::flush;
}

void Progress::add(std::uint64_t amount) {
  done_ = std::min(done_ + amount, total_);
  draw(false);
}

void Progress::finish() {
  if (finished_) return;
  done_ = total_;
  draw(true);
  finished_ = true;
}

void Progress::draw(bool last) {
  const Clock::time_point now = Clock::now();
  const double fraction = static_cast<double>(done_) / static_cast<double>(total_);
  const double elapsed = seconds_between(start_, now);
  const double left = fraction > 0 ? elapsed * (1 - fraction) / fraction : 0;
  if (context_.terminal) {
    if (!last && seconds_between(drawn_, now) < 0.1) return;
    const int filled = static_cast<int>(fraction * kBarWidth);
    context_.err << fmt::format("\r\033[K{} [{:#<{}}{:.<{}}] {:3.0f}% {:.0f} s left", label_, "",
                                filled, "", kBarWidth - filled, 100 * fraction, left);
    if (last) context_.err << fmt::format("\r\033[K{}: done in {:.1f} s\n", label_, elapsed);
    context_.err << std::flush;
  } else {
    const std::uint64_t tenth = static_cast<std::uint64_t>(fraction * 10);
    if (!last && (tenth == tenth_ || seconds_between(drawn_, now) < 1)) return;
    tenth_ = tenth;
    if (last)
      context_.err << fmt::format("{}: done in {:.1f} s\n", label_, elapsed);
    else
      context_.err << fmt::format("{}: {:.0f}%, {:.0f} s left\n", label_, 100 * fraction, left);
    context_.err << std::flush;
  }
  drawn_ = now;
}

}  // namespace packstone::cli
