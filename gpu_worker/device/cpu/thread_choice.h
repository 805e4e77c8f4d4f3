// With how many threads a node runs, where the client lets the worker choose:
// all of the worker's, or one. What is faster depends on operator, shape and
// machine, so it is measured: of every kPeriod runs a node tries each a few
// times, and the rest take the one whose best time was shorter.
//
// Thread-safe: runs of the same plan in several threads count together, and may
// mix up their measurements, which costs time only.
#ifndef GPU_WORKER_DEVICE_CPU_THREAD_CHOICE_H_
#define GPU_WORKER_DEVICE_CPU_THREAD_CHOICE_H_

#include <atomic>
#include <cstdint>

namespace djinn::worker {

class ThreadChoice {
 public:
  static constexpr uint32_t kTrials = 4;  // of each
  static constexpr uint32_t kPeriod = 2048;

  struct Turn {
    bool one_thread = false;
    bool measured = false;
  };

  // For a run that begins.
  Turn Next() {
    const uint32_t turn =
        runs_.fetch_add(1, std::memory_order_relaxed) % kPeriod;
    if (turn >= 2 * kTrials) {
      return {best(true) < best(false), /*measured=*/false};
    }
    if (turn == 0) {
      best_[0].store(UINT64_MAX, std::memory_order_relaxed);
      best_[1].store(UINT64_MAX, std::memory_order_relaxed);
    }
    return {turn >= kTrials, /*measured=*/true};
  }

  // What a measured turn took.
  void Took(bool one_thread, uint64_t nanoseconds) {
    std::atomic<uint64_t>& best = best_[one_thread];
    if (nanoseconds < best.load(std::memory_order_relaxed)) {
      best.store(nanoseconds, std::memory_order_relaxed);
    }
  }

 private:
  uint64_t best(bool one_thread) const {
    return best_[one_thread].load(std::memory_order_relaxed);
  }

  std::atomic<uint32_t> runs_{0};
  std::atomic<uint64_t> best_[2] = {UINT64_MAX, UINT64_MAX};
};

// The threads that this thread's kernels use: all that the worker has, or one.
// All again at the end.
class ThreadScope {
 public:
  explicit ThreadScope(bool one_thread);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int count_ = 0;  // to restore; 0: nothing changed
  int mkl_ = 0;    // MKL's own, likewise
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_THREAD_CHOICE_H_
