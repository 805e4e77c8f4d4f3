// Measures how long a thread works: from when it wakes up until it waits again.
// TimeAccount measures separately what the thread works for, so the two can be
// compared.
//
// Not thread-safe.
#ifndef GPU_WORKER_EXECUTOR_WORK_WATCH_H_
#define GPU_WORKER_EXECUTOR_WORK_WATCH_H_

#include <optional>

#include "absl/time/time.h"

namespace djinn::worker {

class WorkWatch {
 public:
  // Begin() notes that the thread begins to work at `now`, and End() that it
  // begins to wait.
  void Begin(absl::Duration now) { since_ = now; }
  void End(absl::Duration now) {
    worked_ = WorkedBy(now);
    since_.reset();
  }

  // Returns the time worked up to `now`, work under way included.
  absl::Duration WorkedBy(absl::Duration now) const {
    return since_.has_value() ? worked_ + (now - *since_) : worked_;
  }

 private:
  absl::Duration worked_;
  // When the work under way began; unset while the thread waits.
  std::optional<absl::Duration> since_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_WORK_WATCH_H_
