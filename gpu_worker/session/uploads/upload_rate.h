// Measures how fast clients' uploads arrived over this worker's link lately.
//
// Uploads of several clients share the link, so the rate counts all bytes that
// arrived over it between two moments. Thread-safe.
#ifndef GPU_WORKER_SESSION_UPLOADS_UPLOAD_RATE_H_
#define GPU_WORKER_SESSION_UPLOADS_UPLOAD_RATE_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gpu_worker/pull/decayed_rate.h"

namespace djinn::worker {

class UploadRate {
 public:
  // Smaller uploads are not measured.
  static constexpr uint64_t kMinBytes = uint64_t{1} << 20;

  // When a chunk arrived, and the number of bytes that had arrived by then, the
  // chunk included.
  struct Mark {
    uint64_t moved = 0;
    absl::Duration at;
  };

  // `clock` must outlive this.
  explicit UploadRate(Clock* clock) : clock_(clock) {}

  // Counts a chunk that arrived over the link.
  Mark Add(uint64_t bytes) {
    return {moved_.fetch_add(bytes, std::memory_order_relaxed) + bytes,
            clock_->Monotonic()};
  }
  // Measures the rate between these two marks, while the link was busy. Ignores
  // two marks of the same time.
  void Note(const Mark& first, const Mark& last) {
    if (last.at <= first.at || last.moved <= first.moved) return;
    MutexLock lock(&mu_);
    rate_.Add(last.moved - first.moved, last.at - first.at, last.at);
  }

  // Returns 0 when nothing arrived lately.
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

#endif  // GPU_WORKER_SESSION_UPLOADS_UPLOAD_RATE_H_
