// The demand on the cluster, in devices.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_DEMAND_H_
#define COORDINATOR_CLUSTER_PLACEMENT_DEMAND_H_

#include <array>

#include "scheduler/scaling/demand.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator {

struct ClusterDemand {
  // By phase.
  scheduler::PhaseAmounts devices = {};
  // Workers that have leases of sessions whose work has the phase, and of all:
  // also those that may serve on without us, and those that are awaited after a
  // restart.
  std::array<int, semantics::kPhaseCount> kept_workers = {};
  int all_kept_workers = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_DEMAND_H_
