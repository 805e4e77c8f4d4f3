// Lists and explains single runs. Only their workers know runs, so the
// functions ask the workers and add what is known of the leases.
#ifndef COORDINATOR_ADMIN_RUNS_H_
#define COORDINATOR_ADMIN_RUNS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::runs {

using ListDone = std::function<void(absl::StatusOr<v1::ListRunsResponse>)>;
using ExplainDone = std::function<void(absl::StatusOr<v1::RunExplanation>)>;

// Asks the session's workers for its runs. Calls `done` once, when all workers
// have answered or their time is up: from any thread, without locks, perhaps
// before this function returns.
void List(ClusterState& state, const std::string& session_id, ListDone done)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Asks the run's worker for the run. Calls `done` as List() does.
void Explain(ClusterState& state, const v1::ExplainRunRequest& request,
             ExplainDone done) ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::runs

#endif  // COORDINATOR_ADMIN_RUNS_H_
