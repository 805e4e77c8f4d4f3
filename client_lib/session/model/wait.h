// Provides bounded waits for the session's threads.
#ifndef CLIENT_LIB_SESSION_MODEL_WAIT_H_
#define CLIENT_LIB_SESSION_MODEL_WAIT_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace djinn {

// A point in time by which a wait ends.
class Deadline {
 public:
  explicit Deadline(absl::Duration timeout, Clock* clock = Clock::Real())
      : clock_(clock), at_(clock->Monotonic() + timeout) {}

  absl::Duration left() const {
    return std::max(at_ - clock_->Monotonic(), absl::ZeroDuration());
  }
  bool passed() const { return left() == absl::ZeroDuration(); }
  Clock* clock() const { return clock_; }

 private:
  Clock* clock_;
  absl::Duration at_;
};

// Waits for a signal until the deadline at most. May return early.
inline void WaitUntil(CondVar* signal, Mutex* mu, const Deadline& deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  deadline.clock()->Wait(signal, mu, deadline.left());
}

// Wakes the one thread that handles all pending work and then waits for the
// next wake-up. Any thread may call Set(), under any lock and from deleters,
// because Set() holds its own lock only for a moment.
class Wakeup {
 public:
  void Set() {
    MutexLock lock(&mu_);
    if (set_) return;
    set_ = true;
    signal_.Signal();
  }
  // Returns once Set() was called since the last return, or at the deadline.
  void Wait(const Deadline& deadline) {
    MutexLock lock(&mu_);
    while (!set_ && !deadline.passed()) WaitUntil(&signal_, &mu_, deadline);
    set_ = false;
  }

 private:
  Mutex mu_;
  CondVar signal_;
  bool set_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_WAIT_H_
