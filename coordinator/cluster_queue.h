// Tenants' queues as operators see, stop and resume them.
#ifndef COORDINATOR_CLUSTER_QUEUE_H_
#define COORDINATOR_CLUSTER_QUEUE_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "coordinator/cluster_state.h"
#include "coordinator/page.h"
#include "coordinator/waker.h"
#include "djinn/v1/queue.pb.h"

namespace djinn::coordinator::queues {

// Ends what leases there are of tenants whose queues are drained.
void DrainStopped(ClusterState& state, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::StopQueue().
absl::StatusOr<v1::QueueInfo> Stop(ClusterState& state,
                                   const std::string& tenant, bool drain,
                                   Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::ResumeQueue().
absl::StatusOr<v1::QueueInfo> Resume(ClusterState& state,
                                     const std::string& tenant, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::GetQueue().
absl::StatusOr<v1::QueueInfo> Get(ClusterState& state,
                                  const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// As Cluster::Queues().
Page<v1::QueueInfo> List(ClusterState& state, const PageRange& range)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

}  // namespace djinn::coordinator::queues

#endif  // COORDINATOR_CLUSTER_QUEUE_H_
