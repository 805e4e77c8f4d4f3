// Describes the demand on the cluster, in devices.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_DEMAND_H_
#define COORDINATOR_CLUSTER_PLACEMENT_DEMAND_H_

#include <array>

#include "scheduler/scaling/demand.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator {

struct ClusterDemand {
  // Devices that the demand would keep busy, by phase.
  scheduler::PhaseAmounts devices = {};
  // Workers that must stay, by phase of the sessions that have leases on them,
  // and in total. Includes lost workers that may still serve their sessions,
  // and workers that have not joined yet after a restart of the coordinator.
  std::array<int, semantics::kPhaseCount> kept_workers = {};
  int all_kept_workers = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_DEMAND_H_
