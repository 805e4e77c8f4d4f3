// Virtual devices whose work is cut for their members: into stages, or along
// the batch.
#ifndef COORDINATOR_CLUSTER_STAGES_H_
#define COORDINATOR_CLUSTER_STAGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/stage_planner.h"
#include "coordinator/stream_id.h"
#include "coordinator/waker.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator::stages {

// As Cluster::MembersForStages().
std::optional<StageMembers> MembersOf(ClusterState& state,
                                      const StreamId& session,
                                      uint32_t virtual_device)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::StagesInForce().
v1::StagePlan InForce(ClusterState& state, const StreamId& session,
                      uint32_t virtual_device, const std::string& fingerprint)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::AnswerStages(); takes out of the answer what is sent.
void Answer(ClusterState& state, const StreamId& session,
            v1::StageAnswer* answer, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::stages

#endif  // COORDINATOR_CLUSTER_STAGES_H_
