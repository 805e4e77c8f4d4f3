// Time as a dependency: production code takes a Clock, tests a FakeClock.
#ifndef COMMON_BASE_CLOCK_H_
#define COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall time, for people: may jump.
  virtual absl::Time Now() = 0;
  // Time since an arbitrary start; never falls. For every time-out.
  virtual absl::Duration Monotonic() = 0;
  // Waits for a signal, for `timeout` of this clock at most. May return early:
  // callers look again, at the time too.
  virtual void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) = 0;

  // The process' real clock; never destroyed.
  static Clock* Real();
};

// Stands still until told to move. Whoever waits notices within a moment.
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
