#include "gpu_worker/session/handlers/run_steps.h"

#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/trace/span.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/node_edge.h"
#include "gpu_worker/plan/run_executor.h"
#include "gpu_worker/store/device_memory.h"
#include "scheduler/fairness/deadline_rule.h"

namespace djinn::worker {
namespace {

void NoteInTime(SessionState& s, RunInTime result) {
  // Does not count the run when the session ended, unless the client cancelled.
  if (!s.status.stopped || s.status.cancelled) {
    s.counts.InTime(s.status.priority(), result);
  }
}

// Binds and checks the run in `begun` without any effect. Returns false when it
// must not begin.
bool Suits(SessionState& s,
           absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
           bool own_turn, SessionRuns::Begun* begun) {
  const v1::Run& run = begun->item.message.run();
  const uint64_t sequence = begun->item.message.sequence();
  SessionRuns& runs = s.runs;
  if (runs.looked_at.sequence == sequence && !suits(runs.looked_at.products)) {
    return false;
  }
  const GraphTable::Graph* const srg_graph = s.graphs.Find(run.graph_id());
  // HandleRun() deals with what is refused, missing or wrong.
  if (srg_graph == nullptr || srg_graph->refused != nullptr) return false;
  if (own_turn) {
    absl::StatusOr<std::shared_ptr<const Plan>> plan =
        s.graphs.PlanOf(*srg_graph, run);
    if (!plan.ok()) return false;
    begun->plan = *std::move(plan);
  } else {
    begun->plan = s.who.environment.graphs->Use(srg_graph->fingerprint,
                                                s.who.tenant, run.size());
  }
  s.message.deadline = begun->item.deadline;
  if (begun->plan == nullptr || !begun->plan->refusal().ok() ||
      !CheckDeadline(s, run.graph_id()).ok()) {
    return false;
  }
  if (begun->plan->program().products().empty()) {
    runs.looked_at = {sequence, {}};
    return false;
  }
  if (!BindRun(run, begun->plan.get(), srg_graph->remembered, s.storages,
               &runs.bound)
           .ok() ||
      !CheckRun(*begun->plan, runs.bound, s.storages).ok()) {
    return false;
  }
  runs.looked_at = {sequence, ProductsOf(*begun->plan, runs.bound)};
  return suits(runs.looked_at.products) && HasRoom(s, *begun->plan);
}

}  // namespace

void NotePhaseOf(SessionState& s, uint64_t id, v1::Phase phase,
                 GraphTable::Graph* srg_graph) {
  if (srg_graph->phase == phase) return;
  srg_graph->phase = phase;
  s.log.SetPhase(id, phase);
  s.flow.Refresh();
}

void NotePhase(SessionState& s, v1::Phase phase) {
  if (s.status.phase.exchange(phase, std::memory_order_relaxed) == phase) {
    return;
  }
  s.who.callbacks.phase();
}

uint64_t BoundContentBytes(SessionState& s) {
  uint64_t bytes = 0;
  for (const BoundRun::Binding& binding : s.runs.bound.bindings) {
    const Storage* const storage = s.storages.Find(binding.storage);
    if (storage != nullptr &&
        storage->quota.storage_class() == StorageClass::kContent) {
      bytes += storage->size_bytes;
    }
  }
  return bytes;
}

absl::Status CheckDeadline(const SessionState& s, uint64_t srg_graph) {
  const absl::Duration deadline = s.message.deadline;
  if (deadline == absl::InfiniteDuration()) return absl::OkStatus();
  const absl::Duration now = s.who.environment.clock->Monotonic();
  const absl::Duration late = now - deadline;
  const absl::Duration expected = s.log.Expected(srg_graph, now);
  const absl::Duration ahead = s.runs.ahead;
  const scheduler::DeadlineVerdict verdict =
      scheduler::JudgeDeadline(deadline, expected, ahead, now);
  if (verdict == scheduler::DeadlineVerdict::kInTime) return absl::OkStatus();
  if (verdict == scheduler::DeadlineVerdict::kMissed) {
    return MakeError(
        absl::StatusCode::kDeadlineExceeded, "RUN_DEADLINE_EXCEEDED",
        absl::StrCat("the run was not begun: its turn came ",
                     absl::FormatDuration(late), " after its deadline"));
  }
  const absl::Status refused = MakeError(
      absl::StatusCode::kDeadlineExceeded, "RUN_WOULD_BE_LATE",
      absl::StrCat("the run was not begun: its deadline is in ",
                   absl::FormatDuration(-late), ", and it would be done in ",
                   absl::FormatDuration(ahead + expected),
                   " at the earliest, with ", absl::FormatDuration(ahead),
                   " before it"));
  // A later try may have less work ahead, but the run does not get shorter.
  const int64_t wait = s.status.run_deadline.load(std::memory_order_relaxed);
  return WithRetryAfter(refused, wait == SessionStatus::kNever ||
                                         expected <= absl::Nanoseconds(wait)
                                     ? ahead + expected + late
                                     : absl::InfiniteDuration());
}

bool HasRoom(SessionState& s, const Plan& plan) {
  const SessionEnvironment& environment = s.who.environment;
  if (environment.edge == nullptr || !environment.edge->GoesFirst()) {
    return true;
  }
  const uint64_t bytes = LifetimesOf(plan, s.runs.bound.final_slots).peak_bytes;
  return bytes == 0 ||
         (s.quota.Reserve(bytes).ok() &&
          environment.memory
              ->Reserve(MemoryClass::kStorages, s.who.tenant, bytes)
              .ok());
}

RunContext ContextOf(SessionState& s, uint64_t sequence) {
  const SessionEnvironment& environment = s.who.environment;
  return {.sequence = sequence,
          .tenant = s.who.tenant,
          .storages = &s.storages,
          .quota = &s.quota,
          .errors = &s.errors,
          .memory = environment.memory,
          .counters = environment.counters,
          .cancelled = &s.status.stopped,
          // A profile shows a run that executes alone.
          .edge = s.profiling.profile == nullptr ? environment.edge : nullptr};
}

void NoteRunTime(SessionState& s, uint64_t srg_graph, absl::Duration took) {
  const absl::Duration deadline = s.message.deadline;
  const absl::Duration now = s.who.environment.clock->Monotonic();
  s.log.NoteTime(srg_graph, took, now);
  if (deadline == absl::InfiniteDuration()) return;
  NoteInTime(s, now <= deadline ? RunInTime::kAttained : RunInTime::kMissed);
}

void NoteRefusal(SessionState& s, const absl::Status& why) {
  if (why.code() != absl::StatusCode::kDeadlineExceeded) return;
  const bool predicted = ErrorReason(why) == "RUN_WOULD_BE_LATE";
  NoteInTime(s, predicted ? RunInTime::kRefused : RunInTime::kMissed);
  s.counts.Refused(why);
}

std::unique_ptr<RunTrace> TraceOf(const SessionState& s,
                                  const v1::Ordered& message) {
  const SpanSink* const sink = s.who.environment.spans;
  const TraceContext context = FromProto(message.trace());
  if (sink == nullptr || !message.has_run() || !sink->Takes(context)) {
    return nullptr;
  }
  return std::make_unique<RunTrace>(context);
}

std::string NodesUntimed(const SessionState& s) {
  const Device& device = *s.who.environment.memory->device();
  return device.times_nodes()
             ? ""
             : absl::StrCat("device ", device.name(),
                            " does not say when a node was executed");
}

namespace {

void ExportTrace(SessionState& s, const RunTrace& trace,
                 const v1::RunRecord& record, absl::Duration now) {
  const SessionEnvironment& environment = s.who.environment;
  trace.Export(record,
               {.worker_id = environment.worker_id,
                .tenant = s.who.tenant,
                .session_id = log::ShortId(s.who.session_id),
                .wall = WallTimes(environment.clock),
                .now = now},
               environment.random->NonZero64(), environment.spans);
}

}  // namespace

void NoteRunOver(SessionState& s, const v1::RunMetadata& metadata,
                 absl::Duration arrived, bool first, RunRecords::End end,
                 const RunTrace* trace) {
  const absl::Duration now = s.who.environment.clock->Monotonic();
  const v1::Phase phase = s.status.phase;
  s.counts.RunOver(phase,
                   metadata.has_error()
                       ? static_cast<absl::StatusCode>(metadata.error().code())
                       : absl::StatusCode::kOk,
                   now - arrived);
  const std::optional<ResultTimes::Result> result =
      s.runs.results.NoteRun(phase, arrived, first);
  if (result.has_value()) s.counts.Result(*result);
  end.phase = phase;
  end.planned = s.graphs.TakePlanningTime();
  if (s.status.cancelled) {
    end.state = v1::RunRecord::CANCELLED;
  } else if (end.failure != nullptr && end.state == v1::RunRecord::COMPLETED) {
    end.state = v1::RunRecord::FAILED;
  }
  if (ABSL_PREDICT_TRUE(trace == nullptr)) {
    s.log.Finish(end, now);
    return;
  }
  v1::RunRecord record;
  if (s.log.Finish(end, now, &record)) ExportTrace(s, *trace, record, now);
}

absl::StatusOr<bool> BeginBatchRun(
    SessionState& s, Inbox::Item* item,
    absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
    bool own_turn) {
  auto begun = std::make_unique<SessionRuns::Begun>();
  begun->item = std::move(*item);
  s.message.bytes = begun->item.bytes;
  // Migration, profiles, offers and copies need work around every message, so
  // such a run executes alone.
  const bool alone = s.leaving || s.profiling.profile != nullptr ||
                     s.offers.pins() || s.copies.any();
  if (alone || !Suits(s, suits, own_turn, begun.get())) {
    *item = std::move(begun->item);
    return false;
  }
  const v1::Ordered& message = begun->item.message;
  s.message.counts = true;
  s.errors.set_lane(message.lane());
  GraphTable::Graph* const srg_graph = s.graphs.Find(message.run().graph_id());
  DJINN_ASSIGN_OR_RETURN(
      const Lifetimes* const lifetimes,
      s.graphs.Remember(*begun->plan, s.runs.bound, srg_graph));
  if (!message.run().has_repeat()) {
    begun->plan->SetContentBytes(BoundContentBytes(s));
  }
  const v1::Phase phase = begun->plan->KindTo(s.who.tenant).phase;
  NotePhaseOf(s, message.run().graph_id(), phase, srg_graph);
  NotePhase(s, phase);
  begun->first = !std::exchange(srg_graph->has_run, true);
  begun->context = ContextOf(s, message.sequence());
  begun->run =
      MakeOngoingRun(*begun->plan, s.runs.bound, *lifetimes, begun->context);
  begun->run->Begin();
  s.runs.begun = std::move(begun);
  return true;
}

void EndBatchRun(SessionState& s, absl::Duration used) {
  const SessionRuns::Begun& begun = *s.runs.begun;
  const v1::Ordered& message = begun.item.message;
  v1::ControlResponse response;
  begun.run->Finish(response.mutable_metadata());
  s.who.environment.counters->recomputed_nodes +=
      message.run().recomputed_nodes();
  const RootError failure = s.errors.oldest_new();
  std::unique_ptr<RunTrace> trace;
  if (ABSL_PREDICT_FALSE(message.has_trace())) {
    trace = TraceOf(s, message);
    if (trace != nullptr && trace->wants_nodes()) {
      trace->NoteUntimed("the run was executed in a batch");
    }
  }
  NoteRunOver(s, response.metadata(), begun.item.arrived, begun.first,
              {.device_time = used, .failure = failure.get()}, trace.get());
  begun.plan->AddDeviceTime(used);
  s.message.deadline = begun.item.deadline;
  NoteRunTime(s, message.run().graph_id(), used);
  // Replies as HandleRun() does.
  if (message.run().reply_metadata() && !s.status.stopped) {
    response.mutable_metadata()->set_sequence(message.sequence());
    Reply(s, std::move(response));
  }
  s.flow.CountRun();
  ++s.runs.done;
}

}  // namespace djinn::worker
