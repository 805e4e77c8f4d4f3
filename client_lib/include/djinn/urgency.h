// Sets how urgent the session's runs are:
//
//   absl::StatusOr<djinn::Urgency> before = djinn::SetUrgency(
//       {.priority = djinn::Priority::kRealtime,
//        .run_deadline = absl::Milliseconds(50)});
//
// The urgency decides the order in which runs execute. An urgent run may also
// preempt a run of another tenant between two operators. The urgency does not
// enlarge a tenant's share, and does not change results.
#ifndef CLIENT_LIB_INCLUDE_DJINN_URGENCY_H_
#define CLIENT_LIB_INCLUDE_DJINN_URGENCY_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

// Higher priorities run sooner. A tenant's configuration may forbid the highest
// ones.
enum class Priority {
  // The program declares no priority: runs count as kInteractive, except that
  // training counts as kBatch.
  kDefault = 0,
  kBatch = 1,
  kInteractive = 2,
  kRealtime = 3,
};

struct Urgency {
  Priority priority = Priority::kDefault;
  // The time, from a run's arrival at its worker, by which the run should be
  // finished. The worker refuses a run whose turn comes after that time, or
  // that would finish after it, judging by earlier runs of its graph. The
  // results of a refused run fail with DeadlineExceeded (RUN_DEADLINE_EXCEEDED
  // or RUN_WOULD_BE_LATE). Among runs of one priority, the run with the
  // earliest deadline executes first. An infinite deadline means that runs wait
  // as long as necessary.
  absl::Duration run_deadline = absl::InfiniteDuration();
};

// Sets the urgency of the open session's runs and returns the previous one.
// Returns before the workers know the urgency; the coordinator sends it to them
// soon. A call that fails changes nothing. Errors: PermissionDenied
// (PRIORITY_NOT_ALLOWED) if the tenant may not use the priority;
// InvalidArgument (BAD_URGENCY) if the deadline is not positive;
// FailedPrecondition (NO_SESSION) if no session is open.
DJINN_API absl::StatusOr<Urgency> SetUrgency(const Urgency& urgency);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_URGENCY_H_
