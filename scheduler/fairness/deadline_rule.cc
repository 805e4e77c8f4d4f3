#include "scheduler/fairness/deadline_rule.h"

namespace djinn::scheduler {

absl::Duration Ahead(const FairQueue& queue, uint64_t key,
                     const std::optional<InService>& in_service,
                     absl::Duration now) {
  absl::Duration ahead = queue.Ahead(key);
  // The session in service continues first, unless it yields.
  if (in_service.has_value() && in_service->until > now &&
      in_service->key != key &&
      queue.priority(key) <= queue.priority(in_service->key) &&
      !queue.SameTenant(key, in_service->key)) {
    ahead += in_service->until - now;
  }
  return ahead;
}

DeadlineVerdict JudgeDeadline(absl::Duration deadline, absl::Duration expected,
                              absl::Duration ahead, absl::Duration now) {
  if (now > deadline) return DeadlineVerdict::kMissed;
  if (expected == absl::ZeroDuration() || now + ahead + expected <= deadline) {
    return DeadlineVerdict::kInTime;
  }
  return DeadlineVerdict::kWouldBeLate;
}

std::optional<absl::Duration> LateBehind(
    const FairQueue& queue, uint64_t key, const FairQueue::Work& work,
    const std::optional<InService>& in_service, absl::Duration now) {
  if (work.expected == absl::ZeroDuration()) return std::nullopt;
  const absl::Duration ahead = Ahead(queue, key, in_service, now);
  if (JudgeDeadline(work.deadline, work.expected, ahead, now) ==
      DeadlineVerdict::kInTime) {
    return std::nullopt;
  }
  return ahead;
}

}  // namespace djinn::scheduler
