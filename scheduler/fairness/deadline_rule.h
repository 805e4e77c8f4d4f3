// Whether a run can still be done by its deadline; workers and the simulator go
// by it alike.
//
// All of it is what is known: what nobody knows to take long is expected to
// take nothing, so what is judged to be late would be late even so.
#ifndef SCHEDULER_FAIRNESS_DEADLINE_RULE_H_
#define SCHEDULER_FAIRNESS_DEADLINE_RULE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::scheduler {

enum class DeadlineVerdict {
  kInTime,
  // It is over.
  kMissed,
  // The run would be done behind it.
  kWouldBeLate,
};
// Of a run that is expected to take so long, or 0 when that is not known, once
// what takes `ahead` is done.
DeadlineVerdict JudgeDeadline(absl::Duration deadline, absl::Duration expected,
                              absl::Duration ahead, absl::Duration now);

// The session in service, and by when its step is expected to be done.
struct InService {
  uint64_t key = 0;
  absl::Duration until;
};
// What is done before the session's step, at least, if it waits.
absl::Duration Ahead(const FairQueue& queue, uint64_t key,
                     const std::optional<InService>& in_service,
                     absl::Duration now);
// If the session waits with a step that is known to be late: what is done
// before it, at least.
std::optional<absl::Duration> LateBehind(
    const FairQueue& queue, uint64_t key, const FairQueue::Work& work,
    const std::optional<InService>& in_service, absl::Duration now);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_DEADLINE_RULE_H_
