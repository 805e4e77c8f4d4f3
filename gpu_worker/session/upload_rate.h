// How fast clients' uploads have come over this worker's link lately.
//
// What counts is all that came over it between two moments, whoever sent it:
// uploads of several clients share the link. Thread-safe.
#ifndef GPU_WORKER_SESSION_UPLOAD_RATE_H_
#define GPU_WORKER_SESSION_UPLOAD_RATE_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "gpu_worker/pull/decayed_rate.h"

namespace djinn::worker {

class UploadRate {
 public:
  // Uploads of less say nothing of the link.
  static constexpr uint64_t kMinBytes = uint64_t{1} << 20;

  // When a chunk came, and all that had come by then, it included.
  struct Mark {
    uint64_t moved = 0;
    absl::Duration at;
  };

  // Outlived by the clock.
  explicit UploadRate(Clock* clock) : clock_(clock) {}

  // A chunk came over the link.
  Mark Add(uint64_t bytes) {
    return {moved_.fetch_add(bytes, std::memory_order_relaxed) + bytes,
            clock_->Monotonic()};
  }
  // Between these two the link was busy. What takes no time says nothing.
  void Note(const Mark& first, const Mark& last) {
    if (last.at <= first.at || last.moved <= first.moved) return;
    MutexLock lock(&mu_);
    rate_.Add(last.moved - first.moved, last.at - first.at, last.at);
  }

  // 0: nothing came lately.
  uint64_t BytesPerSecond() const {
    MutexLock lock(&mu_);
    return rate_.BytesPerSecond(clock_->Monotonic());
  }

 private:
  Clock* const clock_;
  std::atomic<uint64_t> moved_{0};
  mutable Mutex mu_;
  DecayedRate rate_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_UPLOAD_RATE_H_
