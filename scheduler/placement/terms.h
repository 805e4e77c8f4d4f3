// The terms that a policy weighs for one worker, as PlacementTerms in
// placement.proto.
#ifndef SCHEDULER_PLACEMENT_TERMS_H_
#define SCHEDULER_PLACEMENT_TERMS_H_

#include <cstdint>

#include "scheduler/placement/fleet.h"
#include "scheduler/placement/request.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

struct Terms {
  double queue_seconds = 0;
  uint64_t missing_bytes = 0;
  double transfer_seconds = 0;
  // Speed of the link behind transfer_seconds: measured or configured. 0 when
  // neither is known and a typical link is assumed.
  double link_bytes_per_second = 0;
  bool link_measured = false;
  double compute_seconds = 0;
  double compute_factor = 1;
  double cost = 0;
  double load = 0;

  // Returns how long the request occupies the worker.
  double occupied_seconds() const { return transfer_seconds + compute_seconds; }
  // Returns the time until the request is finished.
  double finish_seconds() const { return queue_seconds + occupied_seconds(); }
};

// Computes the terms of a worker that holds `held_bytes` of the asked bytes.
Terms ComputeTerms(const Request& request, const WorkerFacts& worker,
                   uint64_t held_bytes, const semantics::CostFactors& factors);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_TERMS_H_
