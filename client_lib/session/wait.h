// Waiting with a bound, for the session's threads.
#ifndef CLIENT_LIB_SESSION_WAIT_H_
#define CLIENT_LIB_SESSION_WAIT_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace djinn {

// A point in time by which a wait ends.
class Deadline {
 public:
  explicit Deadline(absl::Duration timeout)
      : at_(Clock::Real()->Monotonic() + timeout) {}

  absl::Duration left() const {
    return std::max(at_ - Clock::Real()->Monotonic(), absl::ZeroDuration());
  }
  bool passed() const { return left() == absl::ZeroDuration(); }

 private:
  absl::Duration at_;
};

// Waits for a signal until the deadline. In slices: an infinite time-out would
// overflow the system's clock.
inline void WaitUntil(CondVar* signal, Mutex* mu, const Deadline& deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  signal->WaitWithTimeout(mu, std::min(deadline.left(), absl::Hours(1)));
}

// Wakes one thread that works through everything there is and then waits again.
// Set() may be called under any lock and from deleters: its own is held for a
// moment only.
class Wakeup {
 public:
  void Set() {
    MutexLock lock(&mu_);
    if (set_) return;
    set_ = true;
    signal_.Signal();
  }
  // Returns once Set() was called since the last return.
  void Wait() {
    MutexLock lock(&mu_);
    while (!set_) signal_.Wait(&mu_);
    set_ = false;
  }

 private:
  Mutex mu_;
  CondVar signal_;
  bool set_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_WAIT_H_
