// Judges whether a run can still end by its deadline. Workers and the simulator
// use the same rule.
//
// The rule only uses known times: work of unknown length counts as 0. A run
// that is judged late would therefore be late in any case.
#ifndef SCHEDULER_FAIRNESS_DEADLINE_RULE_H_
#define SCHEDULER_FAIRNESS_DEADLINE_RULE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::scheduler {

enum class DeadlineVerdict {
  kInTime,
  // The deadline has passed.
  kMissed,
  // The run would end after its deadline.
  kWouldBeLate,
};
// Judges a run that starts after `ahead` and is expected to take `expected`, or
// 0 when its length is unknown.
DeadlineVerdict JudgeDeadline(absl::Duration deadline, absl::Duration expected,
                              absl::Duration ahead, absl::Duration now);

// The session in service, and the time at which its step is expected to end.
struct InService {
  uint64_t key = 0;
  absl::Duration until;
};
// Returns the least time that passes before the session's step begins, if the
// session waits.
absl::Duration Ahead(const FairQueue& queue, uint64_t key,
                     const std::optional<InService>& in_service,
                     absl::Duration now);
// Returns the least time that passes before the session's step begins, if the
// session waits with a step that is certain to be late; otherwise nothing.
std::optional<absl::Duration> LateBehind(
    const FairQueue& queue, uint64_t key, const FairQueue::Work& work,
    const std::optional<InService>& in_service, absl::Duration now);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_DEADLINE_RULE_H_
