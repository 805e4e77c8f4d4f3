// Answers a session that asks how to share out the rows of a captured graph's
// batch between the workers of its virtual device.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_BATCH_PLANNER_H_
#define COORDINATOR_CLUSTER_PLACEMENT_BATCH_PLANNER_H_

#include "absl/strings/string_view.h"
#include "coordinator/cluster/placement/stage_planner.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::coordinator {

// Returns the plan for a captured graph's batch: rows for each worker, or
// micro-batches through stages if the split of the rows has a problem. If there
// is no plan, the answer's problem says why. `graph` was accepted before, under
// `fingerprint` (bytes). Takes time that grows with the graph.
v1::StageAnswer AnswerBatchRequest(const v1::StageRequest& request,
                                   const v1::Graph& graph,
                                   absl::string_view fingerprint,
                                   const StageMembers& members);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_BATCH_PLANNER_H_
