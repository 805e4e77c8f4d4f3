// Charges the executor thread's time: each moment in which it works belongs to
// the lease whose turn it was last, or to housekeeping.
//
// The executor thread calls everything but WorkedBy(), which is thread-safe.
#ifndef GPU_WORKER_EXECUTOR_TIME_ACCOUNT_H_
#define GPU_WORKER_EXECUTOR_TIME_ACCOUNT_H_

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "gpu_worker/executor/executor_metrics.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/executor/work_watch.h"
#include "gpu_worker/leases/lease_meter.h"

namespace djinn::worker {

class TimeAccount {
 public:
  // Both outlive it.
  TimeAccount(Preemption* preemption, ExecutorMetrics* metrics)
      : preemption_(preemption), metrics_(metrics) {}

  // The thread begins to work at `now`, and waits from `now` on. What it did
  // since the last turn was settled belongs to that turn. Takes no other lock
  // than its own.
  void BeginWork(absl::Duration now);
  void EndWork(absl::Duration now);

  // The lease used so much of the device for work of this phase. True when the
  // coordinator should hear that some lease's credit is half used up.
  bool Charge(std::shared_ptr<LeaseMeter> meter, v1::Phase phase,
              absl::Duration used);
  // What the thread has done since the last turn was settled is housekeeping.
  void KeepHouse();

  // How long the thread has worked until `now`.
  absl::Duration WorkedBy(absl::Duration now) const;

 private:
  // Charges the lease that was charged last.
  void ChargeLast(absl::Duration used);

  Preemption* const preemption_;
  ExecutorMetrics* const metrics_;
  // The lease charged last; none since the thread began to work.
  std::shared_ptr<LeaseMeter> meter_;
  v1::Phase phase_ = v1::PHASE_UNSPECIFIED;
  bool low_credit_ = false;
  mutable Mutex mu_;
  WorkWatch work_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_TIME_ACCOUNT_H_
