#include "common/clock.h"

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
};

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

void FakeClock::Advance(absl::Duration by) {
  MutexLock lock(&mu_);
  elapsed_ += by;
}

}  // namespace djinn
