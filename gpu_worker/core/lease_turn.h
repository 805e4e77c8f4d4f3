// What a lease says of its session's turns on the device.
#ifndef GPU_WORKER_CORE_LEASE_TURN_H_
#define GPU_WORKER_CORE_LEASE_TURN_H_

#include "absl/time/time.h"
#include "common/lease/priority_class.h"
#include "common/net/proto_duration.h"
#include "djinn/v1/lease.pb.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::worker {

// The tenant's, for the queue.
inline double WeightOf(const v1::LeaseClaims& lease) {
  return lease.weight() > 0 ? lease.weight() : 1;
}

inline int PriorityOf(const v1::LeaseClaims& lease) {
  static_assert(v1::PriorityClass_ARRAYSIZE ==
                scheduler::FairQueue::kPriorities);
  return EffectiveClass(lease.urgency().priority_class());
}

// How long runs of the session may wait until they begin.
inline absl::Duration RunDeadlineOf(const v1::LeaseClaims& lease) {
  return lease.urgency().has_run_deadline()
             ? FromProtoDuration(lease.urgency().run_deadline())
             : absl::InfiniteDuration();
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_LEASE_TURN_H_
