// Answers a session that asks how to cut a graph of its virtual device into
// stages for the device's workers.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_STAGE_PLANNER_H_
#define COORDINATOR_CLUSTER_PLACEMENT_STAGE_PLANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/srg.pb.h"
#include "scheduler/placement/stages/stages.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::coordinator {

// The members of a virtual device that have leases. Index i of each list is the
// same member.
struct StageMembers {
  std::vector<uint32_t> numbers;  // ascending
  std::vector<std::string> worker_ids;
  std::vector<scheduler::StageWorker> workers;
  semantics::CostFactors factors;
  // The plan by which the session cuts the graph now; without stages if it does
  // not.
  v1::StagePlan in_force;
};

// Adds the stages, nodes and transfers of `found` to the plan, with member
// numbers.
void DescribeStages(const scheduler::StagePlan& found,
                    const StageMembers& members, v1::StagePlan* plan);

// Returns the plan for a graph's stages; its problem says why there is none.
// `graph` was accepted before, under `fingerprint` (bytes). Takes time that
// grows with the graph.
v1::StageAnswer AnswerStageRequest(const v1::StageRequest& request,
                                   const v1::Graph& graph,
                                   absl::string_view fingerprint,
                                   const StageMembers& members);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_STAGE_PLANNER_H_
