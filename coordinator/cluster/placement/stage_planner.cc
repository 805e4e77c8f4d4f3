#include "coordinator/cluster/placement/stage_planner.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/proto_codec.h"
#include "scheduler/semantics/analysis/analysis.h"

namespace djinn::coordinator {
namespace {

// Most transfers in an answer; the others are less critical.
constexpr size_t kMaxTransfers = 4096;

// Returns the index of each node's worker in the plan in force; empty if these
// members have no such plan.
std::vector<uint32_t> WorkersInForce(const StageMembers& members,
                                     size_t nodes) {
  std::vector<uint32_t> workers(nodes);
  size_t named = 0;
  for (const v1::StagePlan::Stage& stage : members.in_force.stages()) {
    const auto number = std::find(members.numbers.begin(),
                                  members.numbers.end(), stage.member());
    const auto worker = static_cast<size_t>(number - members.numbers.begin());
    if (number == members.numbers.end() ||
        members.worker_ids[worker] != stage.worker_id()) {
      return {};
    }
    for (const uint32_t node : stage.nodes()) {
      if (node >= nodes) return {};
      workers[node] = static_cast<uint32_t>(worker);
      ++named;
    }
  }
  if (named != nodes) workers.clear();
  return workers;
}

absl::StatusOr<scheduler::StagePlan> Plan(const v1::Graph& message,
                                          const StageMembers& members) {
  if (members.workers.size() < 2) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_DIVISIBLE",
                     "the virtual device has no second worker");
  }
  DJINN_ASSIGN_OR_RETURN(const srg::Graph graph, srg::FromProto(message));
  return scheduler::PlanStages(graph, semantics::Analyze(graph),
                               members.workers, members.factors,
                               WorkersInForce(members, graph.nodes.size()));
}

}  // namespace

void DescribeStages(const scheduler::StagePlan& found,
                    const StageMembers& members, v1::StagePlan* plan) {
  plan->set_alone_seconds(found.alone_seconds);
  for (const scheduler::StagePlan::Stage& stage : found.stages) {
    v1::StagePlan::Stage* const out = plan->add_stages();
    out->set_member(members.numbers[stage.worker]);
    out->set_worker_id(members.worker_ids[stage.worker]);
    out->set_node_count(stage.node_count);
    out->set_weight_bytes(stage.weight_bytes);
    out->set_input_bytes(stage.input_bytes);
    out->set_transfer_seconds(stage.transfer_seconds);
    out->set_compute_seconds(stage.compute_seconds);
    for (size_t slot = 0; slot < found.worker_of_slot.size(); ++slot) {
      if (found.worker_of_slot[slot] == static_cast<int>(stage.worker)) {
        out->add_kept_slots(static_cast<uint32_t>(slot));
      }
    }
  }
  for (size_t node = 0; node < found.stage_of_node.size(); ++node) {
    v1::StagePlan::Stage* const stage =
        plan->mutable_stages(static_cast<int>(found.stage_of_node[node]));
    stage->add_nodes(static_cast<uint32_t>(node));
    stage->add_remaining_seconds(found.remaining_of_node[node]);
  }
  const auto member_of = [&](uint32_t stage) {
    return members.numbers[found.stages[stage].worker];
  };
  for (size_t i = 0; i < std::min(found.transfers.size(), kMaxTransfers); ++i) {
    const scheduler::StageTransfer& transfer = found.transfers[i];
    v1::StagePlan::Transfer* const out = plan->add_transfers();
    out->set_from_member(member_of(transfer.from));
    out->set_to_member(member_of(transfer.to));
    out->set_slot(transfer.slot);
    out->set_size_bytes(transfer.size_bytes);
    out->set_seconds(transfer.seconds);
    out->set_remaining_seconds(transfer.remaining_seconds);
  }
}

v1::StageAnswer AnswerStageRequest(const v1::StageRequest& request,
                                   const v1::Graph& graph,
                                   absl::string_view fingerprint,
                                   const StageMembers& members) {
  v1::StageAnswer answer;
  answer.set_virtual_device(request.virtual_device());
  answer.set_number(request.number());
  v1::StagePlan* const plan = answer.mutable_plan();
  plan->set_fingerprint(absl::BytesToHexString(fingerprint));
  const absl::StatusOr<scheduler::StagePlan> found = Plan(graph, members);
  if (!found.ok()) {
    plan->set_problem(std::string(found.status().message()));
    return answer;
  }
  DescribeStages(*found, members, plan);
  for (const int worker : found->worker_of_slot) {
    answer.add_member_of_slot(worker < 0 ? 0 : members.numbers[worker] + 1);
  }
  return answer;
}

}  // namespace djinn::coordinator
