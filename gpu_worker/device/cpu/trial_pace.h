// How often calls are tried besides being carried out: after a trial there is
// none for kRest times as long. A program with many shapes (a decoder has one
// at every position) would otherwise spend its time on trials for seconds. The
// first ones of a worker, kUnpaced altogether, follow each other: a program
// with few shapes has them behind itself after some hundred runs.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_CPU_TRIAL_PACE_H_
#define GPU_WORKER_DEVICE_CPU_TRIAL_PACE_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace djinn::worker {

class TrialPace {
 public:
  // So that trials take a twenty-first of the time at most.
  static constexpr int kRest = 20;
  static constexpr absl::Duration kUnpaced = absl::Milliseconds(100);

  bool IsDue(absl::Duration now) const {
    return absl::ToInt64Nanoseconds(now) >=
           next_.load(std::memory_order_relaxed);
  }
  void Took(absl::Duration start, absl::Duration end) {
    const int64_t took = absl::ToInt64Nanoseconds(end - start);
    if (taken_.fetch_add(took, std::memory_order_relaxed) + took <=
        absl::ToInt64Nanoseconds(kUnpaced)) {
      return;
    }
    next_.store(absl::ToInt64Nanoseconds(end) + kRest * took,
                std::memory_order_relaxed);
  }

 private:
  // In nanoseconds.
  std::atomic<int64_t> taken_{0};
  std::atomic<int64_t> next_{std::numeric_limits<int64_t>::min()};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TRIAL_PACE_H_
