#include "gpu_worker/session/state/graph_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/srg/validate.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {

absl::StatusOr<Admitted> GraphTable::Admit(
    const v1::DefineGraph& define) const {
  return worker::Admit(define.graph(), environment_.caps, tenant_,
                       environment_.graphs,
                       environment_.memory->device()->operators());
}

absl::StatusOr<GraphTable::Defined> GraphTable::Define(
    const v1::DefineGraph& define) {
  const uint64_t id = define.graph_id();
  if (id == 0 || used_.Contains(id)) {
    return Violation(
        absl::StrCat("defines graph ", id, id == 0 ? "" : " a second time"));
  }
  if (graphs_.size() >= max_graphs_) {
    return Violation(
        absl::StrCat("more than ", max_graphs_, " graphs defined"));
  }
  used_.Insert(id);
  Defined defined{&graphs_[id], Admit(define)};
  if (defined.admitted.ok()) {
    defined.graph->fingerprint = defined.admitted->plan->fingerprint();
  }
  return defined;
}

absl::Status GraphTable::Forget(uint64_t id) {
  const auto found = graphs_.find(id);
  if (found == graphs_.end()) {
    return Violation(
        absl::StrCat("forgets graph ", id, ", which is not defined"));
  }
  ForgetRuns(&found->second);
  graphs_.erase(found);
  return absl::OkStatus();
}

GraphTable::Graph* GraphTable::Find(uint64_t id) {
  const auto found = graphs_.find(id);
  return found == graphs_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::shared_ptr<const Plan>> GraphTable::PlanOf(
    const Graph& graph, const v1::Run& run) {
  GraphCache& graphs = *environment_.graphs;
  std::shared_ptr<const Plan> plan = supplied_plan_;
  if (run.size() == 0) {
    if (plan == nullptr) plan = graphs.Use(graph.fingerprint, tenant_);
    return plan;
  }
  std::shared_ptr<const Plan> sized =
      graphs.Use(graph.fingerprint, tenant_, run.size());
  if (sized != nullptr) return sized;
  if (plan == nullptr) plan = graphs.Use(graph.fingerprint, tenant_);
  if (plan == nullptr) return nullptr;
  if (plan->graph().size_hole.empty()) {
    return Violation(absl::StrCat("run: graph ", run.graph_id(),
                                  " has no size, but the run says ",
                                  run.size()));
  }
  const absl::Duration begin = environment_.clock->Monotonic();
  absl::StatusOr<std::shared_ptr<const Plan>> admitted =
      AdmitAtSize(*plan, run.size(), environment_.caps, tenant_, &graphs,
                  environment_.memory->device()->operators());
  planning_ += environment_.clock->Monotonic() - begin;
  if (admitted.ok()) return admitted;
  return Violation(absl::StrCat("run: graph ", run.graph_id(),
                                " is none at size ", run.size(), ": ",
                                admitted.status().message()));
}

absl::Status GraphTable::Supply(const v1::DefineGraph& supply) {
  const Graph& graph = graphs_.at(supply.graph_id());
  const absl::Duration begin = environment_.clock->Monotonic();
  absl::StatusOr<Admitted> admitted = Admit(supply);
  planning_ += environment_.clock->Monotonic() - begin;
  if (!admitted.ok()) {
    return Violation(
        absl::StrCat("supplies graph ", supply.graph_id(),
                     " as one that is refused: ", admitted.status().message()));
  }
  if (admitted->plan->fingerprint() != graph.fingerprint) {
    return Violation(absl::StrCat("supplies another graph than ",
                                  supply.graph_id(), " was"));
  }
  // Holds the plan, so that no other session's graph can evict it before the
  // run.
  supplied_plan_ = std::move(admitted->plan);
  return absl::OkStatus();
}

void GraphTable::ForgetRuns(Graph* graph) {
  for (const RememberedRun& run : graph->remembered) {
    remembered_slots_ -= run.size_in_slots();
  }
  graph->remembered.clear();
}

absl::StatusOr<const Lifetimes*> GraphTable::Remember(const Plan& plan,
                                                      const BoundRun& run,
                                                      Graph* graph) {
  const v1::Run& message = *run.message;
  std::vector<RememberedRun>& remembered = graph->remembered;
  if (!message.has_repeat()) {
    ForgetRuns(graph);
    if (!message.remember()) {
      lifetimes_ = LifetimesOf(plan, run.final_slots);
      return &lifetimes_;
    }
  }
  size_t place = message.repeat().place();
  if (message.remember()) {
    remembered_slots_ += run.bindings.size() + run.floats.size();
    if (remembered_slots_ > srg::kMaxRememberedSlots) {
      return Violation(absl::StrCat("more than ", srg::kMaxRememberedSlots,
                                    " slots and float holes to remember"));
    }
    if (remembered.size() == srg::kMaxRememberedRuns) {
      return Violation(absl::StrCat("more than ", srg::kMaxRememberedRuns,
                                    " runs of a graph to remember"));
    }
    // A repeat starts from a copy of the repeated run, for the parts that are
    // the same.
    remembered.push_back(message.has_repeat() ? remembered[place]
                                              : RememberedRun());
    place = remembered.size() - 1;
  }
  RememberedRun& kept = remembered[place];
  kept.storages.clear();
  for (const BoundRun::Binding& binding : run.bindings) {
    kept.storages.push_back(binding.storage);
  }
  kept.floats = run.floats;
  if (!run.same_final_slots || kept.size != plan.size()) {
    kept.final_slots = run.final_slots;
    kept.size = plan.size();
    kept.lifetimes = LifetimesOf(plan, run.final_slots);
  }
  return &kept.lifetimes;
}

}  // namespace djinn::worker
