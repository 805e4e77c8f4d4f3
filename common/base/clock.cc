#include "common/base/clock.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace djinn {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  absl::Duration Monotonic() override {
    return absl::FromChrono(
        std::chrono::steady_clock::now().time_since_epoch());
  }
  void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    // Waits in slices, because an infinite time-out would overflow the system's
    // clock.
    signal->WaitWithTimeout(mu, std::min(timeout, absl::Hours(1)));
  }
};

// Interval at which threads that wait on a FakeClock look at it again.
constexpr absl::Duration kGlance = absl::Milliseconds(1);

}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

absl::Time FakeClock::Now() {
  MutexLock lock(&mu_);
  return absl::UnixEpoch() + elapsed_;
}

absl::Duration FakeClock::Monotonic() {
  MutexLock lock(&mu_);
  return elapsed_;
}

void FakeClock::Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) {
  signal->WaitWithTimeout(mu, std::min(timeout, kGlance));
}

void FakeClock::Advance(absl::Duration by) {
  MutexLock lock(&mu_);
  elapsed_ += by;
}

}  // namespace djinn
