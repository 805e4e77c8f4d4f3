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

// Records the runs of the report, if runs are recorded.
void Record(ClusterState& state, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns a page of recorded jobs. FailedPrecondition (NOT_RECORDING).
absl::StatusOr<Page<v1::RecordedJob>> Recorded(ClusterState& state,
                                               const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::jobs

#endif  // COORDINATOR_CLUSTER_JOBS_H_
