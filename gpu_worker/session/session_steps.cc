#include "gpu_worker/session/session_steps.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/session/handlers/handlers.h"
#include "gpu_worker/session/handlers/run_steps.h"
#include "gpu_worker/session/state/session_state.h"

namespace djinn::worker {
namespace {

// The most storages that a message may free in a turn that other sessions
// share.
constexpr size_t kFreedBeside = 64;

// Completes the message, unless it was parked.
void CompleteUnlessParked(SessionState& s, uint64_t sequence) {
  const std::optional<ParkedUpload> upload =
      std::exchange(s.message.upload, std::nullopt);
  const std::optional<ParkedPull> pull =
      std::exchange(s.message.pull, std::nullopt);
  const bool parks = upload.has_value() || pull.has_value();
  if (!parks || !s.flow.Park(upload, pull)) Complete(s, sequence);
}

// Executes `item`, with the graph that it waited for, if any. Puts it back when
// it has to wait.
absl::Status StepItem(SessionState& s, Inbox::Item item,
                      std::optional<v1::DefineGraph> supply) {
  if (supply.has_value()) DJINN_RETURN_IF_ERROR(s.graphs.Supply(*supply));
  s.message = {.bytes = item.bytes,
               .counts = !item.message.has_free(),
               .deadline = item.deadline,
               .arrived = item.arrived,
               .mark = item.mark};
  if (ABSL_PREDICT_FALSE(item.message.has_trace())) {
    s.message.trace = TraceOf(s, item.message);
  }
  // Messages that only read storages change no account.
  const bool accounts = !item.message.has_offer() && !item.message.has_read();
  if (accounts && s.offers.pins()) s.offers.ForgetFetched();
  absl::Status status = Handle(s, item.message);
  if (accounts && s.offers.pins()) s.offers.Account(s.storages);
  if (accounts && s.copies.any()) {
    s.copies.Account(s.storages, &s.quota, &s.errors);
  }
  s.graphs.ForgetSupplied();
  if (s.message.lacks_room) {
    if (s.flow.PutBack(std::move(item), {.room = true}).has_value()) {
      s.message.bytes = 0;
    }
    return absl::OkStatus();
  }
  if (const uint64_t id = s.message.missing_graph; id != 0) {
    const std::optional<uint64_t> completed =
        s.flow.PutBack(std::move(item), {.graph_id = id});
    if (!completed.has_value()) return absl::OkStatus();
    s.message.bytes = 0;
    v1::ControlResponse response;
    response.mutable_need()->set_graph_id(id);
    response.set_completed_sequence(*completed);
    s.replies.outbox.PushNews(std::move(response));
    return absl::OkStatus();
  }
  if (item.message.has_run()) {
    s.flow.CountRun();
    ++s.runs.done;
  }
  DJINN_RETURN_IF_ERROR(status);
  // A cancelled run may have stopped in its middle, so it is not completed.
  if (item.message.has_run() && s.status.cancelled) return absl::OkStatus();
  CompleteUnlessParked(s, item.message.sequence());
  return absl::OkStatus();
}

}  // namespace

bool SessionSteps::HasWork() const {
  return !state_.replies.outbox.Full() && state_.flow.upcoming().has_work;
}

bool SessionSteps::Step(std::optional<absl::Duration> now) {
  SessionState& s = state_;
  if (s.replies.outbox.Full()) return false;
  std::optional<MessageFlow::Taken> taken = s.flow.Take(now);
  if (!taken.has_value()) return false;
  bool run = false;
  absl::Status status;
  if (taken->upload.has_value()) {
    ResumeUpload(s, *taken->upload);
    CompleteUnlessParked(s, taken->upload->sequence);
  } else if (taken->pull.has_value()) {
    ResumePull(s, *taken->pull);
    CompleteUnlessParked(s, taken->pull->sequence);
  } else {
    run = taken->item->message.has_run();
    status = StepItem(s, *std::move(taken->item), std::move(taken->supply));
  }
  if (ABSL_PREDICT_FALSE(s.profiling.profile != nullptr)) {
    s.profiling.profile->Leave();
  }
  EndStep();
  FailUnlessOk(s, std::move(status));
  return run;
}

void SessionSteps::EndStep() {
  SessionState& s = state_;
  const std::optional<uint64_t> completed =
      s.flow.EndStep([&s] { FreeState(s); });
  if (!completed.has_value()) return;
  v1::ControlResponse response;
  response.set_completed_sequence(*completed);
  response.mutable_cancelled();
  s.replies.outbox.PushNews(std::move(response));
}

void SessionSteps::StepReadsAndFrees(int most) {
  for (int i = 0; i < most; ++i) {
    const MessageFlow::Upcoming next = state_.flow.upcoming();
    if (!next.read_or_free || next.freed > kFreedBeside || !next.has_work ||
        state_.replies.outbox.Full()) {
      return;
    }
    Step(std::nullopt);
  }
}

void SessionSteps::StepRefusal(absl::Duration ahead) {
  StepReadsAndFrees(1);
  const absl::Duration now = state_.who.environment.clock->Monotonic();
  if (state_.flow.upcoming().run_deadline - now >=
      ahead + state_.flow.next().expected()) {
    return;
  }
  state_.runs.ahead = ahead;
  Step(now);
  state_.runs.ahead = absl::ZeroDuration();
}

OngoingRun* SessionSteps::BeginRun(
    absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
    bool own_turn) {
  SessionState& s = state_;
  if (s.replies.outbox.Full()) return nullptr;
  const MessageFlow::Upcoming next = s.flow.upcoming();
  // Limits the storages freed in another session's turn, which is charged for
  // it.
  if (!next.fast_run || (!own_turn && next.freed > kFreedBeside)) {
    return nullptr;
  }
  if (next.read_or_free) Step(std::nullopt);
  std::optional<Inbox::Item> item = s.flow.TakeFastRun();
  if (!item.has_value()) return nullptr;
  const absl::StatusOr<bool> begun = BeginBatchRun(s, &*item, suits, own_turn);
  if (begun.ok() && *begun) return s.runs.begun->run.get();
  if (begun.ok()) {
    if (s.flow.PutBack(*std::move(item), {}).has_value()) {
      s.message.bytes = 0;
    }
  } else {
    s.flow.CountRun();
  }
  EndStep();
  FailUnlessOk(s, begun.status());
  return nullptr;
}

void SessionSteps::NoteBegun(absl::Duration now) {
  SessionState& s = state_;
  const Inbox::Item& item = s.runs.begun->item;
  s.log.Begin({&item.message, item.arrived, item.deadline}, s.status.phase,
              now);
}

void SessionSteps::EndRun(absl::Duration used) {
  SessionState& s = state_;
  EndBatchRun(s, used);
  const uint64_t sequence = s.runs.begun->item.message.sequence();
  // A cancelled run may have stopped in its middle, so it is not completed.
  if (!s.status.cancelled) Complete(s, sequence);
  s.runs.begun.reset();
  EndStep();
}

void SessionSteps::NoteOutOfCredit(absl::Duration now) {
  state_.flow.NoteOutOfCredit(now);
}

bool SessionSteps::EndTurn(absl::Duration now) {
  return state_.flow.EndTurn(state_.replies.outbox.Full(), now);
}

}  // namespace djinn::worker
