// Runs in real time, except that short pauses end early: a wait for less than
// kShort takes only kLittle, and then the rest counts as passed for that
// thread. So clients retry at once, while the timeouts that detect a hang stay
// long for other threads. Threads must not exchange deadlines, because each has
// its own time.
#ifndef TESTS_SCHEDULES_SKIPPING_CLOCK_H_
#define TESTS_SCHEDULES_SKIPPING_CLOCK_H_

#include <algorithm>

#include "common/base/clock.h"

namespace djinn::schedules {

class SkippingClock : public Clock {
 public:
  static constexpr absl::Duration kShort = absl::Seconds(3);
  static constexpr absl::Duration kLittle = absl::Microseconds(200);

  absl::Time Now() override { return Clock::Real()->Now() + skipped_; }
  absl::Duration Monotonic() override {
    return Clock::Real()->Monotonic() + skipped_;
  }
  void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const bool skips = timeout < kShort;
    const absl::Duration wait =
        std::min(timeout, skips ? kLittle : absl::Hours(1));
    if (signal->WaitWithTimeout(mu, wait) && skips) {
      skipped_ += timeout - wait;
    }
  }

 private:
  static inline thread_local absl::Duration skipped_;
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_SKIPPING_CLOCK_H_
