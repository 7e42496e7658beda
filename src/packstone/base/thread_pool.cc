// Dispatch: the caller publishes a task, then one 64-bit word [generation | next unit]. Whoever
// wants work claims units by compare-and-swap on that word, so a worker that wakes late finds
// either units of the running task or nothing, and the caller waits only for units that somebody
// took. A worker that the system has not scheduled therefore costs nothing: the caller does its
// units.
//
// Cost: two cache-line transfers (~0.3 us) per dispatch while workers spin. After the spin time
// they sleep on a futex; then a dispatch also pays one wake-up (~5 us), off the caller's path.
#include "packstone/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "packstone/base/check.h"

namespace packstone {
namespace {

// Gaps between the matrix products of one decoder layer are under 20 us; the gap between two tokens
// (sampling) is longer and worth a sleep.
constexpr std::chrono::microseconds kSpinTime{60};

// More than any number of units: nothing can be claimed.
constexpr std::uint64_t kClosed = 0xFFFFFFFFu;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Spins until ready() or the time is over; whether ready() was seen.
template <class Ready>
bool spin_until(std::chrono::microseconds time, const Ready& ready) {
  if (ready()) return true;
  if (time.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

struct ThreadPool::State {
  int threads = 1;
  std::chrono::microseconds spin_time{0};

  // The task. Written only while the word is closed (kClosed), by release stores: a late worker
  // that read any of the new values also sees that the word has moved, so its claim fails.
  std::atomic<const RangeTask*> task{nullptr};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> unit_size{1};
  std::atomic<std::uint32_t> units{0};

  alignas(64) std::atomic<std::uint64_t> word{0};  // generation << 32 | next unit
  alignas(64) std::atomic<std::uint32_t> finished{0};
  std::atomic<int> caller_sleeps{0};
  std::atomic<int> finished_event{0};
  alignas(64) std::atomic<int> event{0};  // moves with every task and at the end
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  static std::uint32_t generation_of(std::uint64_t value) {
    return static_cast<std::uint32_t>(value >> 32);
  }

  void work(std::uint32_t generation, int worker);
  void worker_loop(int worker);
  void wait_finished(std::uint32_t total);
};

// Takes units of that generation until none is left. Early claims are larger, the last ones single
// units: few claims, and the threads end together.
void ThreadPool::State::work(std::uint32_t generation, int worker) {
  std::uint32_t done = 0;
  std::uint64_t seen = word.load(std::memory_order_acquire);
  while (generation_of(seen) == generation) {
    const RangeTask* current = task.load(std::memory_order_acquire);
    const std::int64_t total = count.load(std::memory_order_acquire);
    const std::int64_t size = unit_size.load(std::memory_order_acquire);
    const std::uint32_t last = units.load(std::memory_order_acquire);
    const std::uint32_t next = static_cast<std::uint32_t>(seen);
    if (next >= last) break;
    const std::uint32_t take =
        std::max<std::uint32_t>(1, (last - next) / static_cast<std::uint32_t>(2 * threads));
    if (!word.compare_exchange_weak(seen, seen + take, std::memory_order_acq_rel,
                                    std::memory_order_acquire))
      continue;
    (*current)(next* size, std::min(total, (next + std::int64_t{take}) * size), worker);
    done += take;
    seen = word.load(std::memory_order_acquire);
  }
  if (done == 0) return;
  finished.fetch_add(done, std::memory_order_seq_cst);
  if (caller_sleeps.load(std::memory_order_seq_cst) != 0) {
    finished_event.fetch_add(1, std::memory_order_seq_cst);
    finished_event.notify_one();
  }
}

void ThreadPool::State::worker_loop(int worker) {
  std::uint32_t last_generation = 0;
  while (true) {
    // Before `stop` is looked at: whoever stops the pool sets `stop` and then moves the event, so a
    // worker that has seen that move has seen the stop, and one that has not does not sleep on it.
    const int seen_event = event.load(std::memory_order_seq_cst);
    if (stop.load(std::memory_order_acquire)) return;
    const std::uint32_t generation = generation_of(word.load(std::memory_order_acquire));
    if (generation != last_generation) {
      last_generation = generation;
      work(generation, worker);
      continue;
    }
    const bool moved =
        spin_until(spin_time, [&] { return event.load(std::memory_order_relaxed) != seen_event; });
    if (moved) continue;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    event.wait(seen_event, std::memory_order_seq_cst);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void ThreadPool::State::wait_finished(std::uint32_t total) {
  const auto all_done = [&] { return finished.load(std::memory_order_acquire) == total; };
  if (spin_until(std::max(spin_time, std::chrono::microseconds{5}), all_done)) return;
  caller_sleeps.store(1, std::memory_order_seq_cst);
  while (true) {
    const int seen = finished_event.load(std::memory_order_seq_cst);
    if (finished.load(std::memory_order_seq_cst) == total) break;
    finished_event.wait(seen, std::memory_order_seq_cst);
  }
  caller_sleeps.store(0, std::memory_order_seq_cst);
}

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  // More threads than CPUs: a spinning thread would take the CPU from one that works.
  if (threads <= default_thread_count()) state_->spin_time = kSpinTime;
  try {
    for (int worker = 1; worker < threads; ++worker)
      state_->workers.emplace_back([state = state_.get(), worker] { state->worker_loop(worker); });
  } catch (const std::exception&) {
    // The system gives no more threads, or no memory for them: the pool has those that it got.
  }
  // Workers read this only after a dispatch.
  state_->threads = static_cast<int>(state_->workers.size()) + 1;
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->event.fetch_add(1, std::memory_order_seq_cst);
  state_->event.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::size() const {
  return state_->threads;
}

void ThreadPool::parallel(std::int64_t count, std::int64_t grain, RangeTask task) {
  State& state = *state_;
  PACKSTONE_ASSERT(count >= 0);
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (state.threads == 1 || count <= grain) {
    task(0, count, 0);
    return;
  }
  // Units are grains, or runs of grains where the grains would not fit the 32-bit counter.
  std::int64_t unit = grain;
  while (count / unit >= (std::int64_t{1} << 30)) unit *= 2;
  const std::uint32_t units = static_cast<std::uint32_t>(count / unit + (count % unit != 0));
  const std::uint64_t old = state.word.fetch_or(kClosed, std::memory_order_seq_cst);
  state.task.store(&task, std::memory_order_release);
  state.count.store(count, std::memory_order_release);
  state.unit_size.store(unit, std::memory_order_release);
  state.units.store(units, std::memory_order_release);
  state.finished.store(0, std::memory_order_release);
  const std::uint32_t generation = State::generation_of(old) + 1;
  state.word.store(static_cast<std::uint64_t>(generation) << 32, std::memory_order_seq_cst);
  state.event.fetch_add(1, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) != 0) state.event.notify_all();
  state.work(generation, 0);
  state.wait_finished(units);
}

}  // namespace packstone
