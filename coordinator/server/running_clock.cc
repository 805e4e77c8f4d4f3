#include "coordinator/server/running_clock.h"

#include <algorithm>
#include <utility>

namespace djinn::coordinator {

RunningClock::RunningClock(Clock* clock, absl::Duration max_step)
    : clock_(clock), max_step_(max_step), last_(clock->Monotonic()) {}

absl::Time RunningClock::Now() { return clock_->Now(); }

absl::Duration RunningClock::Monotonic() {
  MutexLock lock(&mu_);
  const absl::Duration now = clock_->Monotonic();
  const absl::Duration step = now - std::exchange(last_, now);
  left_out_ += std::max(step - max_step_, absl::ZeroDuration());
  return now - left_out_;
}

void RunningClock::Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) {
  clock_->Wait(signal, mu, timeout);
}

absl::Duration RunningClock::TakeLeftOut() {
  MutexLock lock(&mu_);
  return left_out_ - std::exchange(taken_, left_out_);
}

}  // namespace djinn::coordinator
