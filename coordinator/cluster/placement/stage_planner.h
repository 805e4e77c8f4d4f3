// Answers a session that asks how a graph of its virtual device should be
// cut into stages for the device's members.
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

// The members of a virtual device that have their leases.
struct StageMembers {
  std::vector<uint32_t> numbers;  // ascending
  std::vector<std::string> worker_ids;
  std::vector<scheduler::StageWorker> workers;
  semantics::CostFactors factors;
  // What the session goes by: the graph was cut before. Without stages: it
  // was not.
  v1::StagePlan in_force;
};

// What the plan says of stages, in members.
void DescribeStages(const scheduler::StagePlan& found,
                    const StageMembers& members, v1::StagePlan* plan);

// `graph` was accepted before, under this fingerprint (bytes). Takes time
// that grows with the graph.
v1::StageAnswer AnswerStageRequest(const v1::StageRequest& request,
                                   const v1::Graph& graph,
                                   absl::string_view fingerprint,
                                   const StageMembers& members);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_STAGE_PLANNER_H_
