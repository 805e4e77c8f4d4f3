// Goes on at another worker when one is lost: asks for a new lease, opens a
// stream, and sends the kept messages again.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/copies.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/device/replica/suspects.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/model/remedies.h"
#include "client_lib/session/profile/request_tracer.h"
#include "client_lib/session/stream/backoff.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::replica {
namespace {

using Node = Lineage::Node;

// Shortest wait for a lease.
constexpr absl::Duration kMinAttempt = absl::Seconds(1);
// Number of workers left in succession from which on the pauses grow no more.
constexpr int kMostLeaves = 6;

// Returns the status with more text and the same payload.
absl::Status WithText(const absl::Status& status, absl::string_view more) {
  absl::Status longer(status.code(), absl::StrCat(status.message(), more));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    longer.SetPayload(url, payload);
  });
  return longer;
}

}  // namespace

std::string Obstacle(State& r) {
  const ConnectionState& c = r.connection;
  {
    MutexLock lock(&r.answers.mu);
    if (r.answers.profiler.active()) return "it was being profiled";
  }
  if (c.recovery.losses >= RecoveryState::kMostLosses) {
    return absl::StrCat(c.recovery.losses,
                        " workers were lost one after the other");
  }
  if (c.lineage->complete()) return "";
  const size_t storages = c.lineage->incomplete_storages();
  if (storages == 0) {
    return "a message that cannot be sent again was unfinished";
  }
  return absl::StrCat("the lineage of ", storages,
                      storages == 1 ? " storage" : " storages",
                      " is incomplete (it may take ", c.lineage->budget(),
                      " bytes, replay_memory)");
}

namespace {

// Forgets the lost worker's stream of messages.
void PrepareAnew(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  ConnectionState& c = r.connection;
  for (const MessageLog::Entry& entry : c.log.entries()) {
    const v1::Install& install = entry.message->ordered().install();
    // The replay counts it again, unless it asks by hash.
    if (install.has_content()) {
      r.answers.eager.Complete(install.content().size());
    }
  }
  c.log = MessageLog();
  c.replies = ReplyLog();
  c.needed.clear();
  c.recovery.last_replayed = 0;
  c.recovery.suspects.clear();
  c.recovery.fetches.clear();
  for (auto& [sequence, check] : c.recovery.checks) {
    c.lineage->Release(check.node);
  }
  c.recovery.checks.clear();
  for (const auto& [sequence, run] : c.recovery.metadata_checks) {
    c.lineage->Release(run);
  }
  c.recovery.metadata_checks.clear();
  for (const auto& read : c.checkpoint.reads) {
    c.lineage->Release(read->of.producer);
  }
  c.checkpoint.GiveUp();
  Unanswered unanswered = r.answers.table.Forget();
  absl::c_move(unanswered.meters,
               std::back_inserter(c.recovery.unanswered.meters));
  absl::c_move(unanswered.models,
               std::back_inserter(c.recovery.unanswered.models));
  r.answers.uploads.ForgetWorker();
  for (Node& node : c.lineage->nodes()) {
    if (node.executed || node.payload == nullptr) continue;
    const auto* const upload = std::get_if<std::shared_ptr<UploadWait>>(
        &KeptOf(node)->extras().registration);
    if (upload != nullptr) (*upload)->AskAgain();
  }
}

// Sends the kept messages to the worker that answered.
absl::Status SendAgain(State& r) {
  ConnectionState& c = r.connection;
  const absl::Duration began = Now(r);
  uint64_t restored = 0;
  BeginEncoding(r, /*next_sequence=*/1);
  r.sender.admitted_now.clear();
  Replay replay;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    DJINN_ASSIGN_OR_RETURN(replay, EncodeReplay(r));
    c.recovery.offers = RecoveryState::Offers::kQueued;
    for (const EncodedMessage& message : replay.messages) {
      const v1::Install& install = message.request->ordered().install();
      if (install.has_content()) {
        r.answers.eager.TakeAgain(install.content().size());
      }
    }
    ++r.answers.statistics.recoveries;
    r.answers.statistics.messages_replayed += replay.count;
    c.recovery.last_replayed =
        replay.messages.empty()
            ? 0
            : replay.messages.back().request->ordered().sequence();
    r.answers.NoteReplayed();
    if (replay.messages.empty()) {
      c.recovery.EndReplay();
      r.answers.replays = false;
    }
    for (const Node& node : c.lineage->nodes()) {
      restored += node.anchor;
      if (node.suspicion > 0 && node.suspicion < RecoveryState::kGivenUp) {
        c.recovery.suspects.push_back(node.sequence);
      }
    }
    for (const auto& [wait, source] : replay.uploads) {
      c.recovery.uploads.push_back(wait);
    }
  }
  const uint64_t count = replay.count;
  Append(r, std::move(replay.messages));
  if (!replay.uploads.empty()) {
    auto uploader = r.context->options.threads->Start(
        [&r, uploads = std::move(replay.uploads)] {
          for (const auto& [wait, source] : uploads) {
            const absl::StatusOr<SharedBytes> bytes = source.Load();
            const absl::Status status = bytes.ok()
                                            ? r.uploader.SendAgain(wait, *bytes)
                                            : bytes.status();
            if (status.ok()) continue;
            absl::Status lost;
            {
              MutexLock lock(&r.connection.mu);
              // It is no failure if this worker is lost, too.
              if (r.connection.recovery.due) return;
              lost = WorkerLost(
                  r, WithText(r.connection.recovery.cause,
                              absl::StrCat("; an upload could not be sent "
                                           "again: ",
                                           status.message())));
            }
            return Fail(r, std::move(lost));
          }
        });
    MutexLock lock(&c.mu);
    c.recovery.uploader = std::move(uploader);
  }
  absl::Duration took;
  std::string worker;
  absl::Status cause;
  {
    MutexLock lock(&c.mu);
    DJINN_RETURN_IF_ERROR(EndOfLease(c));
    c.ended_leases.reset();
    c.recovery.due = false;
    took = Now(r) - c.recovery.since;
    worker = c.lease.worker_id();
    cause = c.recovery.cause;
    c.recovery.reporter.Sent(worker, count, restored, began, Now(r));
    if (c.recovery.last_replayed == 0) c.recovery.reporter.Executed(Now(r));
    c.connection_changed.SignalAll();
    c.progress_changed.SignalAll();
  }
  log::Warning("a virtual device recovered", {{"device", r.index},
                                              {"worker", worker},
                                              {"replayed", count},
                                              {"took", took},
                                              {"cause", cause}});
  SendReport(r);
  // The coordinator receives the program's graphs again, for its new worker.
  r.context->SendGraphsAgain();
  return absl::OkStatus();
}

// Asks for a worker and makes it take the session over. `tried` has the workers
// of earlier attempts.
absl::Status TryRecover(State& r, const Deadline& end,
                        absl::flat_hash_set<std::string>* tried) {
  ConnectionState& c = r.connection;
  bool unreachable = true;
  {
    MutexLock lock(&c.mu);
    // An earlier attempt ended.
    if (c.recovery.offers != RecoveryState::Offers::kNone) WithdrawOffers(r);
    // The worker that was lost, unlike one that did not take the session over,
    // may be well: it gave the reason itself, or the device left it.
    if (tried->empty()) {
      const std::string reason = ErrorReason(c.recovery.cause);
      unreachable = reason.empty() || reason == kNoProgress;
    }
  }
  r.context->source_losses.Tell();
  GiveLeaseBack(r, unreachable);
  const absl::Duration asked = Now(r);
  const absl::Status leased =
      RequestLease(r, std::max(end.left(), kMinAttempt));
  bool again = false;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    c.recovery.reporter.Asked(Now(r) - asked);
    DJINN_RETURN_IF_ERROR(leased);
    again = !tried->insert(c.lease.worker_id()).second;
    if (!c.end.wanted()) return absl::CancelledError("given up");
    c.recovery.unsuitable = absl::OkStatus();
    r.answers.NoteReplayed();
    PrepareAnew(r);
  }
  const absl::Duration leased_at = Now(r);
  const absl::Status opened = TryOpen(r, AttemptTime(end, /*patient=*/again));
  {
    MutexLock lock(&c.mu);
    c.recovery.reporter.Connected(Now(r) - leased_at);
  }
  DJINN_RETURN_IF_ERROR(opened);
  {
    MutexLock lock(&c.mu);
    c.recovery.offers = RecoveryState::Offers::kReplayed;
  }
  r.context->source_losses.Tell();
  DJINN_RETURN_IF_ERROR(FetchAgain(r));
  return SendAgain(r);
}

}  // namespace

namespace {

// Waits for a random time, which grows with each worker that was left in
// succession.
void PauseAfterLeaves(State& r) {
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  Backoff pauses(r.context->options.random);
  absl::Duration time;
  for (int i = 1; i < std::min(c.recovery.leaves, kMostLeaves); ++i) {
    time = pauses.Next();
  }
  const Deadline pause(time, r.context->options.clock);
  while (c.end.wanted() && !pause.passed()) {
    WaitUntil(&c.connection_changed, &c.mu, pause);
  }
}

}  // namespace

absl::Status LoseWorker(State& r, const absl::Status& cause) {
  ConnectionState& c = r.connection;
  if (c.recovery.due) return absl::OkStatus();
  if (c.lineage == nullptr || !c.welcomed || !c.end.wanted() ||
      !c.end.failing.ok() || AfterWorkerError(cause) == Remedy::kGiveUp) {
    absl::Status lost = WorkerLost(r, cause);
    // Completes the report of an earlier loss whose replay was under way.
    c.recovery.reporter.Failed(lost, Now(r));
    return lost;
  }
  const bool returns = ErrorReason(cause) == kFallbackEnded;
  const std::string obstacle = Obstacle(r);
  if (returns && !obstacle.empty()) {
    log::Warning("a device stays on the client's machine",
                 {{"device", r.index}, {"because", obstacle}});
    return absl::OkStatus();
  }
  // A further loss belongs to the same recovery.
  if (!c.recovery.reporter.open()) {
    c.recovery.trace = RequestTracer::Global().NewTrace();
  }
  c.recovery.reporter.Begin(r.index, r.role.member, c.lease.worker_id(), cause,
                            Now(r));
  if (!obstacle.empty()) {
    absl::Status lost = WorkerLost(
        r, WithText(cause,
                    absl::StrCat("; it is not replayed, because ", obstacle)));
    c.recovery.reporter.Failed(lost, Now(r));
    return lost;
  }
  NoteLoss(r, cause);
  c.recovery.due = true;
  c.recovery.cause = cause;
  c.recovery.since = Now(r);
  c.recovery.former_workers.insert(c.lease.worker_id());
  // Leaving a worker that is well is no sign of trouble with workers.
  ++(IsLeft(ErrorReason(cause)) ? c.recovery.leaves : c.recovery.losses);
  WithdrawOffers(r);
  r.answers.replays = true;
  r.receiver.SetConnected(false);
  c.stream.broken = true;
  c.stream.break_cause = cause;
  c.connection_changed.SignalAll();
  c.progress_changed.SignalAll();
  return absl::OkStatus();
}

void Recover(State& r) {
  ConnectionState& c = r.connection;
  const SessionOptions& options = r.context->options;
  const Deadline end(options.connect_timeout, options.clock);
  Backoff pauses(options.random);
  absl::flat_hash_set<std::string> tried;
  absl::Status cause;
  std::string worker;
  {
    MutexLock lock(&c.mu);
    cause = c.recovery.cause;
    worker = c.lease.worker_id();
  }
  log::Warning("a virtual device lost its worker; requesting another",
               {{"device", r.index}, {"worker", worker}, {"cause", cause}});
  // It goes elsewhere in another way now, and the lease there ends.
  EndMigration(r,
               MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_BUSY",
                         "its worker was lost"),
               {});
  PauseAfterLeaves(r);
  for (int tries = 1;; ++tries) {
    if (!DropStream(r)) return;
    EndUploads(r);
    const absl::Status status = TryRecover(r, end, &tried);
    if (status.ok()) return;
    const bool hopeless =
        end.passed() || AfterFailedRecovery(status) == Remedy::kGiveUp;
    absl::Status lost;
    bool given_up = false;
    {
      MutexLock lock(&c.mu);
      given_up = !c.end.wanted();
      lost = WorkerLost(
          r, WithText(
                 c.recovery.cause,
                 absl::StrCat("; no other worker took over in ", tries,
                              tries == 1 ? " attempt" : " attempts", " within ",
                              absl::FormatDuration(Now(r) - c.recovery.since),
                              "; the last one failed: ", status.message())));
      if (hopeless) c.recovery.reporter.Failed(lost, Now(r));
      const Deadline pause(std::min(pauses.Next(), end.left()), options.clock);
      while (!given_up && !pause.passed() && c.end.wanted()) {
        WaitUntil(&c.connection_changed, &c.mu, pause);
      }
      given_up |= !c.end.wanted();
    }
    // Returns a lease that was granted while the device failed.
    if (given_up) return GiveLeaseBack(r, /*unreachable=*/false);
    if (hopeless) return Fail(r, std::move(lost));
  }
}

namespace {

// Forgets the copies among the storages that are freed.
void ForgetCopies(RecoveryState* recovery, const v1::Free& freed) {
  for (const uint64_t storage : freed.storages()) {
    // Most devices keep none.
    if (recovery->kept_copies.empty()) return;
    if (recovery->kept_copies.erase(storage) == 0) continue;
    recovery->asked_offers.erase(storage);
    recovery->spare_offers.erase(storage);
    recovery->replayed_offers.erase(storage);
  }
}

}  // namespace

void KeepMessage(State& r, EncodedMessage* message) {
  ConnectionState& c = r.connection;
  if (c.lineage == nullptr) return;
  const v1::Ordered& ordered = message->request->ordered();
  if (ordered.has_free() && c.recovery.last_replayed < ordered.sequence()) {
    c.lineage->Free(ordered.free().storages());
    ForgetCopies(&c.recovery, ordered.free());
  }
  if (ordered.has_register_model()) {
    const v1::RegisterModel& model = ordered.register_model();
    if (model.storages().empty()) {
      c.recovery.models.erase(model.model_id());
    } else {
      c.recovery.models[model.model_id()] = model;
    }
  }
  if (message->keepsake == nullptr) return;
  const std::unique_ptr<Keepsake> keepsake = std::move(message->keepsake);
  Lineage::Message kept;
  kept.bytes = keepsake->Bytes();
  kept.uses = std::move(keepsake->uses);
  kept.payload = std::move(keepsake->message);
  kept.awaits_answer = keepsake->awaits_answer;
  if (kept.payload != nullptr && !kept.payload->has_bytes()) {
    ++r.answers.statistics.uploads_not_kept;
  }
  if (!c.checkpoint.new_messages &&
      std::any_of(kept.uses.begin(), kept.uses.end(),
                  [](const Lineage::Use& use) { return use.writes > 0; })) {
    c.checkpoint.new_messages = true;
    // The device's own thread waits for the next checkpoint.
    if (c.checkpoint.enabled) r.sender.wakeup.Set();
  }
  if (keepsake->kept_copy != nullptr) {
    c.recovery.kept_copies[ordered.install().storage()] =
        std::move(keepsake->kept_copy);
  }
  if (const auto* const message = static_cast<KeptMessage*>(kept.payload.get());
      message != nullptr && message->extras().copy != nullptr) {
    c.recovery.fetches.emplace_back(ordered.sequence(), message->extras().copy);
  }
  c.lineage->Add(ordered.sequence(), std::move(kept), keepsake->freed);
}

void WarnIfIncomplete(State& r) {
  ConnectionState& c = r.connection;
  size_t storages = 0;
  uint64_t budget = 0;
  {
    MutexLock lock(&c.mu);
    if (c.lineage == nullptr || c.lineage->complete() || c.recovery.warned) {
      return;
    }
    storages = c.lineage->incomplete_storages();
    // A message that cannot be sent again is unfinished.
    if (storages == 0) return;
    c.recovery.warned = true;
    budget = c.lineage->budget();
  }
  log::Warning(
      "the lineage is incomplete: the loss of the worker would end the virtual "
      "device; raise replay_memory",
      {{"device", r.index}, {"storages", storages}, {"replay_memory", budget}});
}

void NoteExecuted(State& r, uint64_t sequence) {
  ConnectionState& c = r.connection;
  NoteFetched(r, sequence);
  if (c.lineage != nullptr) c.lineage->Executed(sequence);
  std::deque<uint64_t>& suspects = c.recovery.suspects;
  while (!suspects.empty() && suspects.front() <= sequence) {
    suspects.pop_front();
  }
  if (c.recovery.last_replayed == 0) return;
  r.answers.NoteReplayed();
  if (sequence < c.recovery.last_replayed) return;
  c.recovery.last_replayed = 0;
  c.recovery.EndReplay();
  r.answers.replays = false;
  c.recovery.reporter.Executed(Now(r));
}

void SendReport(State& r) {
  std::vector<v1::RecoveryReport> reports;
  TraceContext trace;
  {
    MutexLock lock(&r.connection.mu);
    RecoveryState& recovery = r.connection.recovery;
    reports = recovery.reporter.Take();
    if (!recovery.reporter.open()) std::swap(trace, recovery.trace);
  }
  for (v1::RecoveryReport& report : reports) {
    v1::SessionRequest request;
    if (trace.valid() && &report == &reports.back()) {
      *request.mutable_trace() = ToProto(trace);
    }
    *request.mutable_recovered() = std::move(report);
    r.context->link->Report(std::move(request));
  }
}

void NoteRefused(State& r, uint64_t transfer_id) {
  ConnectionState& c = r.connection;
  if (c.lineage == nullptr) return;
  for (const MessageLog::Entry& entry : c.log.entries()) {
    const v1::Ordered& message = entry.message->ordered();
    if (message.install().transfer().transfer_id() != transfer_id) continue;
    Node* const node = c.lineage->FindPending(entry.sequence);
    if (node != nullptr) c.lineage->MakeIncomplete(node);
    return;
  }
}

void EndUploads(State& r) {
  RecoveryState& recovery = r.connection.recovery;
  std::unique_ptr<ThreadFactory::Thread> thread;
  {
    MutexLock lock(&r.connection.mu);
    MutexLock answers_lock(&r.answers.mu);
    for (const auto& wait : recovery.uploads) {
      if (wait->state == UploadWait::State::kOver) continue;
      wait->state = UploadWait::State::kOver;
      wait->refusal = absl::CancelledError("the worker is lost");
      wait->changed.SignalAll();
    }
    recovery.uploads.clear();
    thread = std::move(recovery.uploader);
  }
  if (thread != nullptr) thread->Join();
}

}  // namespace djinn::replica
