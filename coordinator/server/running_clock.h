// A clock that leaves out the time in which this process was suspended, alone
// or with its machine. Peers may have sent messages in that time, so it must
// not count against them.
//
// A running process reads its clock all the time. If it did not for longer than
// `max_step`, it was suspended, and only `max_step` counts as passed.
//
// Thread-safe.
#ifndef COORDINATOR_SERVER_RUNNING_CLOCK_H_
#define COORDINATOR_SERVER_RUNNING_CLOCK_H_

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace djinn::coordinator {

class RunningClock : public Clock {
 public:
  // `clock` must outlive this.
  RunningClock(Clock* clock, absl::Duration max_step);

  // Returns the wall time, from which nothing is left out.
  absl::Time Now() override;
  absl::Duration Monotonic() override;
  void Wait(CondVar* signal, Mutex* mu, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Returns the time that was left out since the last call.
  absl::Duration TakeLeftOut();

 private:
  Clock* const clock_;
  const absl::Duration max_step_;
  Mutex mu_;
  // The clock's time at the last call.
  absl::Duration last_ ABSL_GUARDED_BY(mu_);
  absl::Duration left_out_ ABSL_GUARDED_BY(mu_);
  // The part of left_out_ that TakeLeftOut() has returned.
  absl::Duration taken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SERVER_RUNNING_CLOCK_H_
