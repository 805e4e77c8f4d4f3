// Virtual devices whose work is cut for their members: into stages, or along
// the batch.
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

// Returns the members of the virtual device that have their leases, and what
// was learned of devices; nothing when the session is gone or asks too often:
// it will ask again.
std::optional<StageMembers> MembersOf(ClusterState& state,
                                      const StreamId& session,
                                      uint32_t virtual_device)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the last plan that the virtual device was given for the graph, by its
// fingerprint in hex; a plan without stages when there is none.
v1::StagePlan InForce(ClusterState& state, const StreamId& session,
                      uint32_t virtual_device, const std::string& fingerprint)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Keeps the plan, for operators and for the next question, and sends it unless
// the session leaves too many messages unread.
void Answer(ClusterState& state, const StreamId& session,
            v1::StageAnswer answer) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::stages

#endif  // COORDINATOR_CLUSTER_PLACEMENT_STAGES_H_
