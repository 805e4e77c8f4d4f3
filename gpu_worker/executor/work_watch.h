// How long a thread was at work: from when it wakes up until it waits again.
// What the thread is at work for is measured elsewhere, piece by piece; the two
// can be compared.
//
// Not thread-safe.
#ifndef GPU_WORKER_EXECUTOR_WORK_WATCH_H_
#define GPU_WORKER_EXECUTOR_WORK_WATCH_H_

#include <optional>

#include "absl/time/time.h"

namespace djinn::worker {

class WorkWatch {
 public:
  // The thread goes to work at `now`, and waits from `now` on.
  void Begin(absl::Duration now) { since_ = now; }
  void End(absl::Duration now) {
    worked_ = WorkedBy(now);
    since_.reset();
  }

  // Up to `now`, what it is at included.
  absl::Duration WorkedBy(absl::Duration now) const {
    return since_.has_value() ? worked_ + (now - *since_) : worked_;
  }

 private:
  absl::Duration worked_;
  // Unset while it waits.
  std::optional<absl::Duration> since_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_WORK_WATCH_H_
