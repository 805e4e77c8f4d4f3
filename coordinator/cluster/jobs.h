// Records the runs that workers report.
#ifndef COORDINATOR_CLUSTER_JOBS_H_
#define COORDINATOR_CLUSTER_JOBS_H_

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/page.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::jobs {

// Records the runs that the worker's last report added, if the configuration
// has runs recorded. Leaves out runs whose session is not known.
void Record(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns a page of recorded jobs, or FailedPrecondition (NOT_RECORDING) when
// the configuration has none recorded.
absl::StatusOr<Page<v1::RecordedJob>> Recorded(ClusterState& state,
                                               const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::jobs

#endif  // COORDINATOR_CLUSTER_JOBS_H_
