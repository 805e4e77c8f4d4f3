// Chooses the worker for one virtual device of a session.
//
// Assumptions: bringing bytes to a worker costs time in proportion, and so does
// waiting behind other runs; both are added up in seconds, so that neither
// affinity nor load can starve the other.
//
// Steps: leave out workers that cannot take it; if any worker has no lease of
// this session yet, leave out those that have; take the cheapest; among equals
// the one with more free memory, then the smaller id.
//
// A pure function: no clock, no randomness, no state.
#ifndef SCHEDULER_PLACEMENT_PLACEMENT_H_
#define SCHEDULER_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace djinn::scheduler {

// What is known of one worker when the decision is made.
struct WorkerSnapshot {
  std::string worker_id;
  uint64_t memory_bytes = 0;
  // Free, or held by contents that would give way.
  uint64_t available_bytes = 0;
  // Of the bytes asked for, those that the tenant already has there.
  uint64_t held_bytes = 0;
  uint32_t queued_runs = 0;
  // Live leases of all sessions, and of the asking session.
  uint32_t leases = 0;
  uint32_t session_leases = 0;
};

// What one unit costs, in seconds.
struct PlacementWeights {
  double per_missing_byte = 1e-9;
  double per_queued_run = 5e-3;
  double per_lease = 1e-3;
};

struct Placement {
  std::string worker_id;
  // For people: "holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease".
  std::string reason;
};

// `asked_bytes` is what the session is about to upload; `workers` are those
// that can be reached. Worth trying again: Unavailable (NO_WORKER) when there
// is none, ResourceExhausted (NO_CAPACITY) when none has the memory now. Not
// worth it: FailedPrecondition (TOO_LARGE) when none will ever have it.
absl::StatusOr<Placement> Place(uint64_t asked_bytes,
                                absl::Span<const WorkerSnapshot> workers,
                                const PlacementWeights& weights = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_PLACEMENT_H_
