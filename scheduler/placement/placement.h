// Chooses the worker for one virtual device of a session, and records why.
//
// Steps: look at candidates (candidates.h); compute each one's terms (terms.h);
// drop those that a filter excludes (filters.h) and, while any worker has no
// lease of this session, those that have one; take the one with the lowest
// score of the policy (policy.h). Ties go to the earlier finish, then to more
// free memory, then to the smaller id. When all candidates are dropped, more
// are drawn.
//
// Pure: no clock and no state; the caller provides the randomness.
#ifndef SCHEDULER_PLACEMENT_PLACEMENT_H_
#define SCHEDULER_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "scheduler/placement/candidates.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/policy.h"
#include "scheduler/placement/terms.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

struct PlacementOptions {
  // Number of workers drawn at random besides the holders of state.
  size_t draws = 8;
};

// Most candidates that one decision looks at.
inline constexpr size_t kMaxLookedAt = 256;

// A candidate, as the decision saw it.
struct Considered {
  std::string worker_id;
  bool holder = false;
  uint64_t held_bytes = 0;
  uint64_t available_bytes = 0;
  Terms terms;
  double score = 0;
  // Name of the filter that it failed (see Drop), "numerics", "reach" or
  // "spread"; empty when it passed all.
  absl::string_view dropped_by;
  std::string drop_reason;
};

struct Decision {
  absl::string_view policy;
  // Empty when no worker was chosen.
  std::string worker_id;
  // Human-readable: "holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease".
  std::string reason;
  // The reason why no worker was chosen. Errors that may pass: Unavailable
  // (NO_WORKER, NO_SUITABLE_WORKER) without any worker, or any suitable one;
  // Unavailable (WAITS_IN_LINE) when the suitable one is reserved for another
  // request; ResourceExhausted (NO_CAPACITY) when none has the memory now.
  // Permanent: FailedPrecondition (TOO_LARGE) when no worker will ever have the
  // memory.
  absl::Status obstacle;
  // A human-readable description of what would remove the obstacle; empty when
  // a worker was chosen.
  std::string unblocked_by;
  // All candidates, the best first and dropped ones last.
  std::vector<Considered> considered;
  uint64_t asked_bytes = 0;
  semantics::Phase phase = semantics::Phase::kUnspecified;
  size_t worker_count = 0;
  size_t looked_at = 0;
};

Decision Place(const Request& request, const Fleet& fleet, const Policy& policy,
               const semantics::CostFactors& factors, Randomness* random,
               const PlacementOptions& options = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_PLACEMENT_H_
