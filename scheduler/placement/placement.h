// Chooses the worker for one virtual device of a session, and keeps why.
//
// Steps: look at candidates (candidates.h); compute each one's terms (terms.h);
// drop those that a filter holds back (filters.h), and, if any worker has no
// lease of this session yet, those that have; take the one with the lowest
// score of the policy (policy.h); among equals the one that is done first, then
// the one with more free memory, then the smaller id. When all that were looked
// at fall, more are drawn.
//
// Pure: no clock, no state; randomness is the caller's.
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
#include "scheduler/placement/request.h"
#include "scheduler/placement/terms.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::scheduler {

struct PlacementOptions {
  // Workers drawn besides those that hold state.
  size_t draws = 8;
  // Looked at in vain before the decision gives up for now.
  size_t max_looked_at = 256;
};

// A worker that was looked at.
struct Considered {
  std::string worker_id;
  bool holder = false;
  uint64_t held_bytes = 0;
  uint64_t available_bytes = 0;
  Terms terms;
  double score = 0;
  // Empty when it passed all filters; otherwise as Drop, or "reach" or
  // "spread".
  absl::string_view dropped_by;
  std::string drop_reason;
};

struct Decision {
  absl::string_view policy;
  // Empty when there is none.
  std::string worker_id;
  // For people: "holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease".
  std::string reason;
  // Why there is none. Worth trying again: Unavailable (NO_WORKER, NO_SUITABLE_
  // WORKER) without any, or when none is fit for this; Unavailable
  // (WAITS_IN_LINE) when the one that is fit is kept for another request;
  // ResourceExhausted (NO_CAPACITY) when none has the memory now. Not worth it:
  // FailedPrecondition (TOO_LARGE) when none will ever have it.
  absl::Status obstacle;
  // What would change that, for people; empty when there is a worker.
  std::string unblocked_by;
  // The best first, dropped ones last.
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
