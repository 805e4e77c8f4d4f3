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

// Describes what a session's next message waits for, in human-readable form.
struct WaitTexts {
  // A text that completes "waits", such as "for its turn: session 1a2b3c4d of
  // tenant red is served".
  std::string what;
  std::string unblocked_by;
};
// Returns texts for the wait; empty ones when its kind is not known here.
WaitTexts TextsOf(const v1::MessageWait& wait);

// Describes the wait in `gate`. Returns false, and changes nothing, when its
// kind is not known here.
bool DescribeWait(const v1::MessageWait& wait, v1::PlacementGate* gate);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_RUN_GATE_H_
