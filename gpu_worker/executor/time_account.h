// Charges the executor thread's time: each moment in which it works belongs to
// the lease whose turn it was last, or to housekeeping.
//
// Only the executor thread uses it, except for WorkedBy(), which is
// thread-safe.
#ifndef GPU_WORKER_EXECUTOR_TIME_ACCOUNT_H_
#define GPU_WORKER_EXECUTOR_TIME_ACCOUNT_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "gpu_worker/executor/executor_metrics.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/leases/lease_meter.h"

namespace djinn::worker {

class TimeAccount {
 public:
  // Both must outlive this.
  TimeAccount(Preemption* preemption, ExecutorMetrics* metrics)
      : preemption_(preemption), metrics_(metrics) {}

  // BeginWork() notes that the thread begins to work at `now`, and EndWork()
  // that it begins to wait. Work since the last turn was settled belongs to
  // that turn. Both take no lock but their own.
  void BeginWork(absl::Duration now);
  void EndWork(absl::Duration now);

  // Charges the lease for device time of this phase. Returns true when half of
  // some lease's credit is used up, which the coordinator should learn.
  bool Charge(std::shared_ptr<LeaseMeter> meter, v1::Phase phase,
              absl::Duration used);
  // Counts the thread's work since the last turn was settled as housekeeping.
  void KeepHouse();

  // Returns how long the thread has worked until `now`. This is measured apart
  // from what is charged, so that the two can be compared.
  absl::Duration WorkedBy(absl::Duration now) const;

 private:
  absl::Duration WorkedLocked(absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Charges the lease that was charged last.
  void ChargeLast(absl::Duration used);

  Preemption* const preemption_;
  ExecutorMetrics* const metrics_;
  // The lease charged last; none since the thread began to work.
  std::shared_ptr<LeaseMeter> meter_;
  v1::Phase phase_ = v1::PHASE_UNSPECIFIED;
  bool low_credit_ = false;
  mutable Mutex mu_;
  // The time worked in all, and when the work under way began; unset while the
  // thread waits.
  absl::Duration worked_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Duration> working_since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_TIME_ACCOUNT_H_
