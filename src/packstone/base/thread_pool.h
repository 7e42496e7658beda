// The only thread pool type. Pools are made by cli, serve and tests and handed down.
#pragma once

#include <cstdint>
#include <memory>

namespace packstone {

// A function view over `void(std::int64_t begin, std::int64_t end, int worker)`; does not own.
class RangeTask {
 public:
  template <class F>
  RangeTask(F& function)  // NOLINT(google-explicit-constructor): call sites pass lambdas
      : object_(&function),
        call_([](void* object, std::int64_t begin, std::int64_t end, int worker) {
          (*static_cast<F*>(object))(begin, end, worker);
        }) {}
  void operator()(std::int64_t begin, std::int64_t end, int worker) const {
    call_(object_, begin, end, worker);
  }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t, int);
};

// parallel(count, grain, task) calls task on ranges that cover [0, count) once and returns when all
// are done.
// Shapes: ranges start at multiples of `grain`; at most size() ranges run at a time.
// Exact: which worker takes a range never reaches a result: tasks write disjoint places.
// Errors: none; a task must not throw. Not re-entrant: a task must not call parallel.
// Cost: no allocation; workers spin for a bounded time (microseconds), then sleep.
// Threads: one caller at a time.
class ThreadPool {
 public:
  // `threads` counts the caller's thread; values below 1 mean 1. Errors: none; where the system
  // refuses a thread the pool has fewer, and size() says how many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  void parallel(std::int64_t count, std::int64_t grain, RangeTask task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// min(affinity mask, cgroup CPU quota rounded up), at least 1.
int default_thread_count();

}  // namespace packstone
