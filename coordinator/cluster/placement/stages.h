// Plans how the work of a virtual device is shared out between its workers: in
// stages, or by the rows of a batch.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_STAGES_H_
#define COORDINATOR_CLUSTER_PLACEMENT_STAGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "coordinator/cluster/placement/stage_planner.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::stages {

// Returns the members of the virtual device that have leases, and the cost
// factors that were learned. Returns nothing when the session is gone or asks
// too often; it will ask again.
std::optional<StageMembers> MembersOf(ClusterState& state,
                                      const StreamId& session,
                                      uint32_t virtual_device)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the last plan with stages that the virtual device got for the graph;
// a plan without stages when there is none. `fingerprint` is in hex.
v1::StagePlan InForce(ClusterState& state, const StreamId& session,
                      uint32_t virtual_device, const std::string& fingerprint)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Stores the plan, for operators and for the next request, and sends it to the
// client. Does neither when the session has too many unread answers.
void Answer(ClusterState& state, const StreamId& session,
            v1::StageAnswer answer) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::stages

#endif  // COORDINATOR_CLUSTER_PLACEMENT_STAGES_H_
