// Decides what is sent when, on the device's own thread or on one that waits
// for the outcome anyway.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/outgoing/message_lines.h"
#include "client_lib/session/device/replica/checkpoint_steps.h"
#include "client_lib/session/device/replica/copies.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"

namespace djinn::replica {
namespace {

// Time that a stream that refused a message may take to end.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);

// Limit on the steps that a thread of the program does as the sender: a few
// pieces of work of a few messages each.
constexpr int kBorrowedSteps = 32;

// Limits on messages that leave together. They are large enough that a message
// costs little more than its bytes, and small enough that the worker need not
// wait.
constexpr uint64_t kMaxTogether = 16;
constexpr uint64_t kMaxTogetherBytes = 4 << 10;

// The sender's next step, and the work that it handles.
enum class Next {
  kNothing,
  kOpen,    // a stream, or the lease first
  kSupply,  // a graph the worker asked for
  kCancel,
  kProof,
  kMessage,  // the log's next one
  kAcknowledge,
  kWork,
  kMigrate,
  kCheckpoint,
  kDrop,
  kStop,
};
struct Step {
  Next next = Next::kNothing;
  std::optional<Work> work;
};

using Message = std::shared_ptr<const v1::ControlRequest>;

// Returns whether no queued work needs a lease, or no work is queued.
bool NothingDue(const State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  return r.queue.empty() || (!r.connection.welcomed && !r.queue.needs_lease());
}

// Returns the next message if it may be sent now, or null.
const MessageLog::Entry* NextToSend(const ConnectionState& c)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
  const MessageLog::Entry* const next = c.log.Next();
  const bool may_leave =
      next != nullptr && c.log.HasRoom(*next) &&
      !c.recovery.Withholds(next->sequence, c.log.completed());
  return may_leave ? next : nullptr;
}

// Returns whether queued work should be encoded first, so that its messages
// leave together with those that wait.
bool Gathers(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  const ConnectionState& c = r.connection;
  // Work of other kinds may wait for the worker.
  return r.receiver.stream()->SendsTogether() && r.queue.next_is_simple() &&
         !HoldsWorkBack(r) && !MigrationDue(r) && !CheckpointHoldsWorkBack(r) &&
         c.log.unsent() < kMaxTogether &&
         c.log.unsent_bytes() < kMaxTogetherBytes;
}

Step TakeStep(State& r) {
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  MutexLock answers_lock(&r.answers.mu);
  if (c.end.stopped) return {Next::kStop, {}};
  if (!c.end.failure.ok()) {
    return {c.end.dropped ? Next::kNothing : Next::kDrop, {}};
  }
  if (!r.receiver.connected() || c.recovery.due) {
    // Work that is being cancelled does not justify a new connection.
    const bool opens =
        !c.end.cancelling && (c.welcomed || r.queue.needs_lease());
    return {opens ? Next::kOpen : Next::kNothing, {}};
  }
  if (!c.needed.empty()) return {Next::kSupply, {}};
  if (c.end.cancelling) {
    return {c.end.cancel_sent ? Next::kNothing : Next::kCancel, {}};
  }
  if (r.answers.uploads.has_proofs()) return {Next::kProof, {}};
  const MessageLog::Entry* const next = c.log.Next();
  const bool ready = NextToSend(c) != nullptr;
  const bool gathers = ready && Gathers(r);
  if (ready && !gathers) return {Next::kMessage, {}};
  if (CheckpointStepDue(r)) return {Next::kCheckpoint, {}};
  if (MigrationDue(r)) return {Next::kMigrate, {}};
  if ((next == nullptr || gathers) && !HoldsWorkBack(r) &&
      !CheckpointHoldsWorkBack(r)) {
    if (std::optional<Work> work = r.queue.Pop()) {
      r.answers.table.SwapAdmitted(&r.sender.admitted_now);
      return {Next::kWork, std::move(work)};
    }
  }
  return {c.replies.Due() ? Next::kAcknowledge : Next::kNothing, {}};
}

void SendAll(State& r, ClientStream* stream,
             absl::Span<const Message> messages) {
  ConnectionState& c = r.connection;
  if (messages.empty()) return;
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    for (const Message& message : messages) LogSent(r.index, *message);
  }
  const absl::Status sent = stream->SendAll(messages);
  if (sent.ok()) return;
  // The log keeps the messages, and OnClosed() reports how the stream ended.
  MutexLock lock(&c.mu);
  const Deadline deadline(kEndTimeout, r.context->options.clock);
  while (!c.stream.closed && c.end.failure.ok() && !deadline.passed()) {
    WaitUntil(&c.connection_changed, &c.mu, deadline);
  }
  if (c.stream.closed || !c.end.failure.ok()) return;
  r.receiver.SetConnected(false);
  c.stream.broken = true;
  c.stream.break_cause = sent;
  c.progress_changed.SignalAll();
}

void Send(State& r, Message message) {
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&r.connection.mu);
    stream = r.receiver.stream();
  }
  SendAll(r, stream, {&message, 1});
}

void SendMessages(State& r) {
  ConnectionState& c = r.connection;
  absl::InlinedVector<Message, kMaxTogether> messages;
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    stream = r.receiver.stream();
    uint64_t bytes = 0;
    const MessageLog::Entry* next = NextToSend(c);
    // No message is left if the worker executed them before a resume.
    while (next != nullptr && messages.size() < kMaxTogether &&
           bytes < kMaxTogetherBytes) {
      if (next->sequence <= c.log.sent()) {
        r.answers.statistics.bytes_resent += next->bytes;
      }
      bytes += next->bytes;
      if (ABSL_PREDICT_FALSE(r.answers.profiler.active())) {
        r.answers.profiler.MarkHanded(
            r.answers.table.reads().Find(next->sequence), Now(r));
      }
      if (ABSL_PREDICT_FALSE(debug::Has(debug::kTrace))) {
        ReadWait* const wait = r.answers.table.reads().Find(next->sequence);
        if (wait != nullptr && wait->traced != nullptr) {
          wait->traced->handed = Now(r);
        }
      }
      c.replies.Acknowledged(next->message->acknowledged_reply());
      messages.push_back(next->message);
      c.log.MarkSent();
      next = NextToSend(c);
    }
  }
  SendAll(r, stream, messages);
}

void SendAcknowledgement(State& r) {
  ConnectionState& c = r.connection;
  auto message = std::make_shared<v1::ControlRequest>();
  {
    MutexLock lock(&c.mu);
    message->set_acknowledged_reply(c.replies.handled());
    c.replies.Acknowledged(message->acknowledged_reply());
  }
  Send(r, std::move(message));
}

void SendSupply(State& r) {
  ConnectionState& c = r.connection;
  uint64_t id = 0;
  uint64_t completed = 0;
  {
    MutexLock lock(&c.mu);
    if (c.needed.empty()) return;  // it belonged to a broken stream
    id = c.needed.front();
    c.needed.pop_front();
    completed = c.log.completed();
  }
  r.sender.encoder.NoteCompleted(completed);
  const std::string* const definition = r.sender.encoder.Definition(id);
  auto message = std::make_shared<v1::ControlRequest>();
  // It may have been defined under another id, for another worker.
  if (definition == nullptr ||
      !message->mutable_supply()->ParseFromString(*definition)) {
    absl::Status lost;
    {
      MutexLock lock(&c.mu);
      lost = WorkerLost(r, Violation(absl::StrCat("it needs graph ", id,
                                                  ", which nothing uses")));
    }
    return Fail(r, std::move(lost));
  }
  message->mutable_supply()->set_graph_id(id);
  {
    MutexLock lock(&r.answers.mu);
    ++r.answers.statistics.needs_answered;
    r.answers.statistics.bytes_up += definition->size();
  }
  Send(r, std::move(message));
}

void SendProof(State& r) {
  auto message = std::make_shared<v1::ControlRequest>();
  {
    MutexLock lock(&r.answers.mu);
    if (!r.answers.uploads.TakeProof(message->mutable_proof())) return;
  }
  Send(r, std::move(message));
}

void SendCancel(State& r) {
  ConnectionState& c = r.connection;
  auto message = std::make_shared<v1::ControlRequest>();
  message->mutable_cancel();
  {
    MutexLock lock(&c.mu);
    c.end.cancel_sent = true;
  }
  Send(r, std::move(message));
}

// Gives the message its number and registers the thread that waits for its
// answer.
void Register(State& r, EncodedMessage* message)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  const v1::Ordered& ordered = message->request->ordered();
  Registration& registration = message->registration;
  if (auto* inlined = std::get_if<InlinedUpload>(&registration)) {
    r.answers.eager.Complete(inlined->size_bytes);
  } else if (auto* upload =
                 std::get_if<std::shared_ptr<UploadWait>>(&registration)) {
    if (ordered.install().has_transfer()) {
      (*upload)->transfer_id = ordered.install().transfer().transfer_id();
      r.answers.uploads.Add(std::move(*upload));
    } else {
      (*upload)->state = UploadWait::State::kOver;
      (*upload)->changed.SignalAll();
    }
  }
  r.answers.table.Register(message);
}

// Begins the profile on the worker.
void ProfileSender(State& r, EncodedMessages* messages) {
  {
    MutexLock lock(&r.answers.mu);
    if (r.answers.profiler.Profiled() == nullptr) return;
    if (r.sender.encoder.profile() != nullptr) return;
    r.sender.encoder.set_profile(r.answers.profiler.Profiled());
  }
  r.sender.encoder.EncodeProfile(v1::PROFILE_ACTION_START, messages);
}

// Encodes the work and appends its messages.
void Process(State& r, Work work) {
  EncodedMessages messages;
  r.sender.encoder.NoteAdmitted(std::exchange(r.sender.admitted_now, {}));
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile)))
    ProfileSender(r, &messages);
  bool stale = false;
  if (auto* const offer = std::get_if<OfferWork>(&work.action)) {
    MutexLock lock(&r.connection.mu);
    CheckOffer(r, work.storage->id(), offer);
  } else if (auto* const pull = std::get_if<PullWork>(&work.action);
             pull != nullptr && pull->kept != nullptr &&
             pull->kept->Look().losses != pull->offered.losses) {
    // The source lost its worker since.
    absl::StatusOr<std::optional<OfferedCopy>> again =
        pull->kept->OfferAgain(/*recovers=*/false);
    // The source may need an offer of this device first, which would wait
    // behind the pull.
    stale = !again.ok() || !again->has_value() || r.queue.overtaken();
    if (!stale) pull->offered = **std::move(again);
  }
  const TraceContext trace = work.trace;
  r.sender.encoder.Encode(std::move(work), &messages);
  if (ABSL_PREDICT_FALSE(trace.valid())) {
    for (EncodedMessage& message : messages) {
      v1::Ordered* const ordered = message.request->mutable_ordered();
      if (ordered->has_run()) *ordered->mutable_trace() = ToProto(trace);
    }
  }
  EncodeForgottenModels(r, &messages);
  Append(r, std::move(messages));
  if (ABSL_PREDICT_FALSE(stale)) {
    MutexLock lock(&r.connection.mu);
    LeaveForSource(r);
  }
}

// Sends frees and ends a flush when nothing else is due. Returns true if there
// is more to send now.
bool FinishRound(State& r, bool free_now) {
  ConnectionState& c = r.connection;
  const bool frees = r.sender.encoder.CollectDead();
  bool closing;
  bool connected;
  {
    MutexLock lock(&c.mu);
    if (!c.end.failure.ok() || c.end.cancelling) return false;
    if (c.recovery.due) {
      if (free_now) r.sender.free_due.store(true, std::memory_order_relaxed);
      return false;
    }
    if (c.migration.current != nullptr &&
        c.migration.current->state != Migration::State::kFinishing) {
      // A session that has left may send nothing else.
      if (free_now) r.sender.free_due.store(true, std::memory_order_relaxed);
      return false;
    }
    // Work that BeginClose() sealed after TakeStep() looked is not drained: its
    // wake-up is still to come. An empty queue stays empty from here on,
    // because BeginClose() closed the recorder first.
    closing = c.end.closing && NothingDue(r) && c.log.Next() == nullptr;
    connected = r.receiver.connected();
    // The connection ended since TakeStep() looked, or there is none yet.
    if (free_now && !connected) {
      r.sender.free_due.store(true, std::memory_order_relaxed);
    }
  }
  if (connected && (free_now || closing) &&
      (frees || r.sender.forgotten.any())) {
    EncodedMessages messages;
    r.sender.encoder.EncodeFrees(&messages);
    EncodeForgottenModels(r, &messages);
    Append(r, std::move(messages));
    return true;
  }
  if (closing) {
    MutexLock lock(&c.mu);
    c.end.drained = true;
    c.progress_changed.SignalAll();
  }
  return false;
}

// Gives up a worker that makes no progress while a message waits for room in
// the window. If the device can recover, another worker takes its place, also
// while calls wait for room. Returns when to check again.
Deadline CheckProgress(State& r) {
  ConnectionState& c = r.connection;
  const SessionOptions& options = r.context->options;
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    const MessageLog::Entry* const next = c.log.Next();
    // After a worker that made no progress, a run that is executed by itself
    // has the same time as the window had there.
    const bool waits =
        next != nullptr
            ? ErrorReason(c.recovery.cause) == kNoProgress ||
                  !c.recovery.Withholds(next->sequence, c.log.completed())
            : c.lineage != nullptr && r.queue.full() && !c.log.empty();
    if (!waits || !r.receiver.connected() || !c.end.failure.ok()) {
      r.sender.stalled.reset();
      return Deadline(absl::InfiniteDuration(), options.clock);
    }
    const uint64_t moves = c.moves.load(std::memory_order_relaxed);
    if (!r.sender.stalled.has_value() || r.sender.stalled_moves != moves) {
      r.sender.stalled_moves = moves;
      r.sender.stalled.emplace(options.operation_timeout, options.clock);
    }
    if (!r.sender.stalled->passed()) return *r.sender.stalled;
    r.sender.stalled.reset();
    lost = LoseWorker(
        r, MakeError(absl::StatusCode::kDeadlineExceeded, kNoProgress,
                     absl::StrCat(
                         "no progress for ",
                         absl::FormatDuration(options.operation_timeout), "; ",
                         c.log.entries().size(), " messages are unfinished")));
  }
  r.sender.wakeup.Set();
  if (!lost.ok()) Fail(r, std::move(lost));
  return Deadline(absl::InfiniteDuration(), options.clock);
}

void DropEverything(State& r) {
  ConnectionState& c = r.connection;
  absl::Status failure, reason;
  {
    MutexLock lock(&c.mu);
    failure = c.end.failure;
    reason = c.end.Reason();
  }
  EndMigration(r, std::move(failure), {});
  // The recorder accepts no call after the failure or the end of the session.
  r.recorder.Fail(std::move(reason));
  r.recorder.DropOpenSegments();
  MessageLog log;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    c.end.dropped = true;
    std::swap(log, c.log);
    r.answers.table.Clear();
    r.answers.uploads.Clear();
    r.sender.forgotten.TakeAll();
    if (c.lineage != nullptr) c.lineage->Clear();
    c.recovery.checks.clear();
    c.recovery.metadata_checks.clear();
    c.recovery.fetches.clear();
    c.checkpoint.GiveUp();
  }
  for (const Work& work : r.queue.Drop()) {
    if (const auto* run = std::get_if<RunWork>(&work.action)) {
      run->segment->Clear();
    }
  }
  r.sender.encoder.Drop();
}

// Does everything that is due. Only the device's own thread opens streams and
// works without a limit on steps. Returns false when the device stops.
bool Advance(State& r, bool own_thread) {
  bool free_now = r.sender.free_due.exchange(false, std::memory_order_relaxed);
  for (int step = 0; own_thread || step < kBorrowedSteps; ++step) {
    Step taken = TakeStep(r);
    switch (taken.next) {
      case Next::kOpen:
        if (own_thread) {
          Open(r);
        } else {
          step = kBorrowedSteps;  // The device's own thread does the rest.
        }
        break;
      case Next::kSupply:
        SendSupply(r);
        break;
      case Next::kCancel:
        SendCancel(r);
        break;
      case Next::kProof:
        SendProof(r);
        break;
      case Next::kMessage:
        SendMessages(r);
        break;
      case Next::kAcknowledge:
        SendAcknowledgement(r);
        break;
      case Next::kWork:
        Process(r, *std::move(taken.work));
        break;
      case Next::kMigrate:
        if (own_thread) {
          Migrate(r);
        } else {
          step = kBorrowedSteps;  // The device's own thread does the rest.
        }
        break;
      case Next::kCheckpoint:
        if (own_thread) {
          StepCheckpoint(r);
        } else {
          step = kBorrowedSteps;  // The device's own thread does the rest.
        }
        break;
      case Next::kDrop:
        DropEverything(r);
        break;
      case Next::kStop:
        DropEverything(r);
        return false;
      case Next::kNothing:
        if (!FinishRound(r, std::exchange(free_now, false))) return true;
        break;
    }
  }
  if (free_now) r.sender.free_due.store(true, std::memory_order_relaxed);
  r.sender.wakeup.Set();
  return true;
}

}  // namespace

void SenderLoop(State& r) {
  Deadline look(absl::InfiniteDuration(), r.context->options.clock);
  for (bool goes_on = true; goes_on;) {
    r.sender.wakeup.Wait(look);
    Notify(r.answers.TakeDue());
    r.sender.turn.Take();
    const uint64_t news = r.context->source_losses.news();
    if (ABSL_PREDICT_FALSE(std::exchange(r.sender.news, news) != news)) {
      CheckSources(r);
    }
    goes_on = Advance(r, /*own_thread=*/true);
    r.context->spill->Trim();
    look = CheckProgress(r);
    const Deadline checkpoint = NextCheckpoint(r);
    if (checkpoint.left() < look.left()) look = checkpoint;
    r.sender.turn.Give();
  }
}

void SendNow(State& r) {
  if (!r.receiver.connected() || !r.sender.turn.TryTake()) {
    r.sender.wakeup.Set();
    return;
  }
  Advance(r, /*own_thread=*/false);
  r.sender.turn.Give();
  const ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  if (!r.receiver.connected() || c.log.Next() != nullptr || !r.queue.empty()) {
    r.sender.wakeup.Set();
  }
}

void Append(State& r, EncodedMessages messages) {
  ConnectionState& c = r.connection;
  absl::InlinedVector<uint64_t, 4> sizes;
  for (const EncodedMessage& message : messages) {
    sizes.push_back(message.request->ordered().ByteSizeLong());
  }
  uint64_t limit = 0;
  uint64_t too_large = 0;
  bool ends = false;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    limit = c.limits.max_outstanding_bytes();
    for (size_t i = 0; i < messages.size(); ++i) {
      EncodedMessage& message = messages[i];
      if (sizes[i] > limit) {
        too_large = sizes[i];
        break;
      }
      KeepMessage(r, &message);
      Register(r, &message);
      message.request->set_acknowledged_reply(c.replies.handled());
      r.answers.statistics.bytes_up += sizes[i];
      c.log.Append(std::move(message.request), sizes[i], message.ends_work,
                   std::move(message.written));
      ends |= message.ends_work;
    }
    r.queue.SetRoom(c.log, ends);
    if (!r.queue.full()) c.window_changed.SignalAll();
    if (c.end.cancelling) c.progress_changed.SignalAll();
  }
  WarnIfIncomplete(r);
  if (too_large == 0) return;
  Fail(r, LimitExceeded("MESSAGE_TOO_LARGE",
                        "one message to the worker (calls with many values or "
                        "very large graphs)",
                        limit, 0, too_large));
}

void EncodeForgottenModels(State& r, EncodedMessages* messages) {
  if (!r.sender.forgotten.any()) return;
  for (const uint64_t id : r.sender.forgotten.TakeAll()) {
    auto request = std::make_shared<v1::ControlRequest>();
    request->mutable_ordered()->mutable_register_model()->set_model_id(id);
    r.sender.encoder.EncodeOther(0, std::move(request), messages);
  }
}

}  // namespace djinn::replica
