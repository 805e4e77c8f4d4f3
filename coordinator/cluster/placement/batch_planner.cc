#include "coordinator/cluster/placement/batch_planner.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/proto_codec.h"
#include "scheduler/placement/stages/batch_split.h"
#include "scheduler/placement/stages/micro_batches.h"
#include "scheduler/placement/stages/row_cost.h"
#include "scheduler/placement/stages/stages.h"
#include "scheduler/semantics/analysis/analysis.h"
#include "scheduler/semantics/rows/batch_cut.h"

namespace djinn::coordinator {
namespace {

// The fraction by which a run may take longer in micro-batches than with its
// rows split. Micro-batches are worth that time, because each weight is then on
// one worker only.
constexpr double kForStages = 0.5;

absl::Status NotDivisible(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_DIVISIBLE", why);
}

// Returns OK if all are slots of the graph, each named once, bound as `bound`
// says and no generator; otherwise FailedPrecondition (NOT_DIVISIBLE).
absl::Status CheckSlots(const srg::Graph& graph,
                        const std::vector<uint32_t>& slots, bool bound) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint32_t slot = slots[i];
    const bool known =
        slot < graph.slots.size() &&
        (graph.slots[slot].kind == srg::Slot::Kind::kBound) == bound &&
        graph.slots[slot].kind != srg::Slot::Kind::kGenerator;
    if (known && absl::c_count(slots, slot) == 1) continue;
    return NotDivisible(absl::StrCat("slot ", slot, " is not one that is ",
                                     bound ? "given" : "put out", " once"));
  }
  return absl::OkStatus();
}

// Adds the parts of the split to the plan, each with its worker.
void Describe(const scheduler::BatchSplit& split, const StageMembers& members,
              v1::BatchPlan* plan) {
  for (const scheduler::BatchSplit::Part& part : split.parts) {
    v1::BatchPlan::Part* const out = plan->add_parts();
    out->set_member(members.numbers[part.worker]);
    out->set_worker_id(members.worker_ids[part.worker]);
    out->set_rows(static_cast<uint64_t>(part.rows));
    out->set_input_bytes(part.input_bytes);
    out->set_output_bytes(part.output_bytes);
    out->set_transfer_seconds(part.transfer_seconds);
    out->set_compute_seconds(part.compute_seconds);
  }
}

// Adds the stages and the micro-batches, which all go through the stages, to
// the answer.
void Describe(const scheduler::MicroBatches& found, const StageMembers& members,
              v1::StageAnswer* answer) {
  DescribeStages(found.stages, members, answer->mutable_plan());
  v1::BatchPlan* const plan = answer->mutable_batch();
  answer->mutable_plan()->set_fingerprint(plan->fingerprint());
  for (const scheduler::MicroBatches::Part& part : found.parts) {
    v1::BatchPlan::Part* const out = plan->add_parts();
    out->set_member(answer->plan().stages(0).member());
    out->set_rows(static_cast<uint64_t>(part.rows));
    out->set_transfer_seconds(part.transfer_seconds);
    out->set_compute_seconds(part.compute_seconds);
  }
}

// Fills the answer with a split of the rows, or with micro-batches if the split
// has a problem. Returns FailedPrecondition (NOT_DIVISIBLE), or the errors of
// srg::FromProto() and semantics::FindBatch().
absl::Status Plan(const v1::StageRequest& request, const v1::Graph& message,
                  const StageMembers& members, v1::StageAnswer* answer) {
  if (members.workers.size() < 2 || members.numbers[0] != 0) {
    return NotDivisible("the virtual device has no two workers");
  }
  DJINN_ASSIGN_OR_RETURN(const srg::Graph graph, srg::FromProto(message));
  const v1::RecordingSlots& slots = request.recording();
  const std::vector<uint32_t> given(slots.given().begin(), slots.given().end());
  const std::vector<uint32_t> outputs(slots.outputs().begin(),
                                      slots.outputs().end());
  DJINN_RETURN_IF_ERROR(CheckSlots(graph, given, /*bound=*/true));
  DJINN_RETURN_IF_ERROR(CheckSlots(graph, outputs, /*bound=*/false));
  DJINN_ASSIGN_OR_RETURN(const semantics::BatchCut cut,
                         semantics::FindBatch(graph, given, outputs));
  const semantics::Meaning meaning = semantics::Analyze(graph);
  const absl::StatusOr<scheduler::StagePlan> stages =
      scheduler::PlanStages(graph, meaning, members.workers, members.factors);
  const scheduler::RowWork work = {graph,           meaning, cut,
                                   given,           outputs, members.workers,
                                   members.factors, stages};
  const scheduler::BatchSplit split = scheduler::SplitBatch(work);
  v1::BatchPlan* const plan = answer->mutable_batch();
  plan->set_rows(static_cast<uint64_t>(cut.rows));
  plan->set_weight_bytes(split.weight_bytes);
  plan->set_alone_seconds(split.alone_seconds);
  plan->set_stage_seconds(split.stage_seconds);
  if (split.problem.empty()) {
    Describe(split, members, plan);
  } else {
    const scheduler::MicroBatches found = scheduler::PlanMicroBatches(work);
    const double most = (1 + kForStages) * split.slowest_seconds();
    if (!found.parts.empty() &&
        (split.parts.empty() || found.seconds <= most)) {
      plan->set_stage_seconds(found.seconds);
      Describe(found, members, answer);
    } else if (!split.parts.empty()) {
      Describe(split, members, plan);
    } else {
      return NotDivisible(absl::StrCat(split.problem, "; ", found.problem));
    }
  }
  srg::Graph varying = graph;
  varying.size_hole = cut.hole;
  *answer->mutable_rows() = srg::ToProto(varying).size_hole();
  for (const uint32_t slot : given) {
    if (cut.row_bytes[slot] > 0) answer->add_cut_slots(slot);
  }
  return absl::OkStatus();
}

}  // namespace

v1::StageAnswer AnswerBatchRequest(const v1::StageRequest& request,
                                   const v1::Graph& graph,
                                   absl::string_view fingerprint,
                                   const StageMembers& members) {
  v1::StageAnswer answer;
  answer.set_virtual_device(request.virtual_device());
  answer.set_number(request.number());
  v1::BatchPlan* const plan = answer.mutable_batch();
  plan->set_fingerprint(absl::BytesToHexString(fingerprint));
  const absl::Status planned = Plan(request, graph, members, &answer);
  if (!planned.ok()) plan->set_problem(std::string(planned.message()));
  return answer;
}

}  // namespace djinn::coordinator
