// Reads from a lease how its session's turns on the device are ordered.
#ifndef GPU_WORKER_LEASES_LEASE_TURN_H_
#define GPU_WORKER_LEASES_LEASE_TURN_H_

#include "absl/time/time.h"
#include "common/base/proto_duration.h"
#include "common/lease/priority_class.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/notes.pb.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::worker {

// Returns the tenant's weight in the queue for the device.
inline double WeightOf(const v1::LeaseClaims& lease) {
  return lease.weight() > 0 ? lease.weight() : 1;
}

// Returns the priority of a session that declared this class, or none, while
// its runs are of this phase.
inline int PriorityOf(v1::PriorityClass declared, v1::Phase phase) {
  static_assert(v1::PriorityClass_ARRAYSIZE ==
                scheduler::FairQueue::kPriorities);
  if (!IsDeclared(declared) && phase == v1::PHASE_TRAINING) {
    return v1::PRIORITY_CLASS_BATCH;
  }
  return EffectiveClass(declared);
}

// Returns how long runs of the session may wait before they begin.
inline absl::Duration RunDeadlineOf(const v1::LeaseClaims& lease) {
  return lease.urgency().has_run_deadline()
             ? FromProtoDuration(lease.urgency().run_deadline())
             : absl::InfiniteDuration();
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_LEASE_TURN_H_
