// Answers a session that asks how the rows of a recording should be shared out
// between its virtual device's members.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_BATCH_PLANNER_H_
#define COORDINATOR_CLUSTER_PLACEMENT_BATCH_PLANNER_H_

#include "absl/strings/string_view.h"
#include "coordinator/cluster/placement/stage_planner.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::coordinator {

// Answers a request about a captured graph, as AnswerStageRequest() does.
v1::StageAnswer AnswerBatchRequest(const v1::StageRequest& request,
                                   const v1::Graph& graph,
                                   absl::string_view fingerprint,
                                   const StageMembers& members);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_BATCH_PLANNER_H_
