// How urgent the session's runs are. It decides who goes first, also before a
// run of another tenant's that is under way, but gives no tenant a larger
// share; and it changes no result.
#ifndef CLIENT_LIB_INCLUDE_DJINN_URGENCY_H_
#define CLIENT_LIB_INCLUDE_DJINN_URGENCY_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"

namespace djinn {

// Higher is sooner. A tenant's configuration may allow less than the highest.
enum class Priority {
  // Nothing is declared: as kInteractive, but training counts as kBatch.
  kDefault = 0,
  kBatch = 1,
  kInteractive = 2,
  kRealtime = 3,
};

struct Urgency {
  Priority priority = Priority::kDefault;
  // By when a run should be done, from when its worker received it. One whose
  // turn comes later than that, or that cannot be done by then as far as runs
  // of its structure tell, is not begun: what it would have written fails with
  // DeadlineExceeded (RUN_DEADLINE_EXCEEDED, RUN_WOULD_BE_LATE). Of runs with
  // one priority, the one with the earlier deadline goes first. Infinite: runs
  // wait as long as it takes.
  absl::Duration run_deadline = absl::InfiniteDuration();
};

// Of the open session's runs, soon: its workers hear of it from the
// coordinator, and the call does not wait for that. Returns what it was.
// PermissionDenied (PRIORITY_NOT_ALLOWED) above what the tenant may use,
// InvalidArgument (BAD_URGENCY) for a deadline that is not positive,
// FailedPrecondition (NO_SESSION) when no session is open; then nothing
// changes.
DJINN_API absl::StatusOr<Urgency> SetUrgency(const Urgency& urgency);

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_URGENCY_H_
