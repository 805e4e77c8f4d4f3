// Handles DefineGraph and Run.
#include <string>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "gpu_worker/plan/node_edge.h"
#include "gpu_worker/plan/run_executor.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"
#include "gpu_worker/session/handlers/run_steps.h"

namespace djinn::worker {

absl::Status HandleDefine(SessionState& s, uint64_t sequence,
                          const v1::DefineGraph& define) {
  for (const uint64_t id : define.forget_ids()) {
    DJINN_RETURN_IF_ERROR(s.graphs.Forget(id));
    s.log.Forget(id);
  }
  DJINN_ASSIGN_OR_RETURN(const GraphTable::Defined defined,
                         s.graphs.Define(define));
  const auto& [graph, found] = defined;
  v1::ControlResponse response;
  v1::Admitted* admitted = response.mutable_admitted();
  admitted->set_graph_id(define.graph_id());
  if (found.ok()) {
    NotePhaseOf(s, define.graph_id(), found->plan->KindTo(s.who.tenant).phase,
                graph);
    s.log.Define(define.graph_id(), graph->fingerprint);
    admitted->set_fingerprint(graph->fingerprint);
    admitted->set_cache_hit(found->known);
  } else {
    graph->refused = s.errors.Make(found.status(), {.sequence = sequence});
    *admitted->mutable_refused() = *graph->refused;
  }
  Reply(s, std::move(response));
  return absl::OkStatus();
}

namespace {

void ExecuteTraced(SessionState& s, const Plan& plan,
                   const Lifetimes& lifetimes, RunContext context,
                   v1::RunMetadata* metadata) {
  Clock* const clock = s.who.environment.clock;
  RunTrace& trace = *s.message.trace;
  NodeTimer timer(clock, RunTrace::kMaxTimedNodes);
  if (trace.wants_nodes()) {
    std::string why = NodesUntimed(s);
    if (why.empty()) {
      context.timer = &timer;
    } else {
      trace.NoteUntimed(std::move(why));
    }
  }
  const absl::Duration began = clock->Monotonic();
  ExecuteRun(plan, s.runs.bound, lifetimes, context, metadata);
  trace.NoteExecution(began, clock->Monotonic());
  trace.NoteNodes(plan, timer);
}

absl::Duration Execute(SessionState& s, uint64_t sequence, uint64_t graph,
                       const Plan& plan, const Lifetimes& lifetimes,
                       v1::ExecutionMode mode, v1::RunMetadata* metadata) {
  RunContext context = ContextOf(s, sequence);
  const auto now = [&] {
    return context.edge != nullptr ? context.edge->OwnTime()
                                   : s.who.environment.clock->Monotonic();
  };
  const absl::Duration start = now();
  if (ABSL_PREDICT_FALSE(s.message.trace != nullptr) &&
      s.profiling.profile == nullptr) {
    ExecuteTraced(s, plan, lifetimes, context, metadata);
  } else if (ABSL_PREDICT_TRUE(s.profiling.profile == nullptr)) {
    ExecuteRun(plan, s.runs.bound, lifetimes, context, metadata);
  } else {
    s.profiling.stages.started = start;
    NodeTimer timer = s.profiling.profile->NewTimer();
    context.timer = &timer;
    s.profiling.profile->Enter(SessionProfile::kExecute);
    ExecuteRun(plan, s.runs.bound, lifetimes, context, metadata);
    s.profiling.stages.ended = s.profiling.profile->Now();
    s.profiling.profile->Enter(SessionProfile::kBind);
    s.profiling.profile->AddRun(sequence, plan, mode, s.profiling.stages,
                                timer);
  }
  const absl::Duration took = now() - start;
  plan.AddDeviceTime(took);
  NoteRunTime(s, graph, took);
  return took;
}

}  // namespace

absl::Status HandleRun(SessionState& s, uint64_t sequence, const v1::Run& run) {
  GraphTable::Graph* const graph = s.graphs.Find(run.graph_id());
  if (graph == nullptr) {
    return Violation(absl::StrCat("graph ", run.graph_id(), " is not defined"));
  }
  if (ABSL_PREDICT_FALSE(s.profiling.profile != nullptr)) {
    s.profiling.stages.looked_up = s.profiling.profile->Now();
  }
  v1::ControlResponse response;
  v1::RunMetadata* metadata = response.mutable_metadata();
  RunRecords::End end;
  // The root error of the whole run.
  RootError failure;
  if (graph->refused != nullptr) {
    if (run.remember()) {
      return Violation("a run of a refused graph is to be remembered");
    }
    DJINN_RETURN_IF_ERROR(
        BindRun(run, nullptr, graph->remembered, s.storages, &s.runs.bound));
    DJINN_RETURN_IF_ERROR(CheckRefusedRun(s.runs.bound, s.storages));
    PoisonRun(nullptr, s.runs.bound, graph->refused, &s.storages);
    failure = graph->refused;
    *metadata->mutable_error() = *failure;
  } else {
    DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                           s.graphs.PlanOf(*graph, run));
    if (plan == nullptr) {
      s.message.missing_graph = run.graph_id();
      return absl::OkStatus();
    }
    if (ABSL_PREDICT_FALSE(s.profiling.profile != nullptr)) {
      s.profiling.stages.bound = s.profiling.profile->Now();
      s.profiling.profile->Enter(SessionProfile::kBind);
    }
    const v1::Phase phase = plan->KindTo(s.who.tenant).phase;
    NotePhaseOf(s, run.graph_id(), phase, graph);
    NotePhase(s, phase);
    DJINN_RETURN_IF_ERROR(
        BindRun(run, plan.get(), graph->remembered, s.storages, &s.runs.bound));
    DJINN_RETURN_IF_ERROR(CheckRun(*plan, s.runs.bound, s.storages));
    absl::Status refused = plan->refusal();
    if (refused.ok() && !s.graphs.supplied() && !HasRoom(s, *plan)) {
      s.who.environment.edge->PutOff();
      s.message.lacks_room = true;
      return absl::OkStatus();
    }
    DJINN_ASSIGN_OR_RETURN(const Lifetimes* const lifetimes,
                           s.graphs.Remember(*plan, s.runs.bound, graph));
    if (!run.has_repeat()) plan->SetContentBytes(BoundContentBytes(s));
    if (refused.ok()) {
      refused = CheckDeadline(s, run.graph_id());
      if (!refused.ok()) end.state = v1::RunRecord::REFUSED;
    }
    if (!refused.ok()) {
      NoteRefusal(s, refused);
      failure = s.errors.MakePoison(refused, {.sequence = sequence});
      PoisonRun(plan.get(), s.runs.bound, failure, &s.storages);
      *metadata->mutable_error() = *failure;
    } else {
      end.device_time = Execute(s, sequence, run.graph_id(), *plan, *lifetimes,
                                run.mode(), metadata);
      failure = s.errors.oldest_new();
    }
  }
  s.who.environment.counters->recomputed_nodes += run.recomputed_nodes();
  end.failure = failure.get();
  NoteRunOver(s, *metadata, s.message.arrived,
              !std::exchange(graph->has_run, true), std::move(end),
              s.message.trace.get());
  // A run that was left out gets no reply, because the session ends, and its
  // end states the reason.
  if (run.reply_metadata() && !s.status.stopped) {
    metadata->set_sequence(sequence);
    Reply(s, std::move(response));
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
