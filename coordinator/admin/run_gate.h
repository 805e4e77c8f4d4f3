// Describes what holds up a run, in human-readable form.
#ifndef COORDINATOR_ADMIN_RUN_GATE_H_
#define COORDINATOR_ADMIN_RUN_GATE_H_

#include <string>

#include "djinn/v1/placement.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

struct RunSurroundings {
  // The worker's report about the run's lease at the same moment.
  const v1::LeaseRuns* lease = nullptr;
  std::string tenant;
  // Describes what would give the lease credit.
  std::string credit_unblocked_by;
};

// Describes in `gate` what holds the run up. Returns false when nothing does,
// because the run is executing or over.
bool DescribeRunGate(const v1::RunRecord& run, const RunSurroundings& around,
                     v1::PlacementGate* gate);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_RUN_GATE_H_
