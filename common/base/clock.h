// Makes time a dependency: production code takes a Clock, tests use a
// FakeClock.
#ifndef COMMON_BASE_CLOCK_H_
#define COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the wall time, for human-readable output. It may jump.
  virtual absl::Time Now() = 0;
  // Returns the time since an arbitrary start. It never falls. All time-outs
  // use it.
  virtual absl::Duration Monotonic() = 0;
  // Waits for a signal for at most `timeout` of this clock. May return early,
  // so callers check their condition and the time again.
  virtual void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // Returns the process' real clock, which is never destroyed.
  static Clock* Real();
};

// A clock that moves only when a test moves it. Waiting threads notice within
// about a millisecond.
class FakeClock : public Clock {
 public:
  absl::Time Now() override;
  absl::Duration Monotonic() override;
  void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Advance(absl::Duration by);

 private:
  Mutex mu_;
  absl::Duration elapsed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // COMMON_BASE_CLOCK_H_
