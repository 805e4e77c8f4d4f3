// Data for placement decisions: the fleet, and what was learned of work.
//
// Invariant: `fleet` has exactly the usable workers, each as it was last
// refreshed. Those in `stale` have lost leases since. Guarded by the cluster's
// lock.
#ifndef COORDINATOR_TABLES_KNOWLEDGE_H_
#define COORDINATOR_TABLES_KNOWLEDGE_H_

#include <cstdint>
#include <set>
#include <string>

#include "coordinator/tables/work_table.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/placement.h"
#include "scheduler/scaling/demand.h"

namespace djinn::coordinator {

struct Knowledge {
  explicit Knowledge(uint64_t seed) : draws(seed) {}

  scheduler::Fleet fleet;
  std::set<std::string> stale;
  WorkTable works;
  scheduler::Randomness draws;
  scheduler::ArrivalMeter arrivals;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_KNOWLEDGE_H_
