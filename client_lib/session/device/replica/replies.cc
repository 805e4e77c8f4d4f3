// Handles the worker's messages.
#include <memory>
#include <string>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/outgoing/message_lines.h"
#include "client_lib/session/device/replica/checkpoint_steps.h"
#include "client_lib/session/device/replica/copies.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/device/replica/room.h"
#include "client_lib/session/device/replica/seen_values.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/transport/arrival.h"

namespace djinn::replica {
namespace {

// Returns whether the response is numbered, kept and acknowledged.
bool IsReply(const v1::ControlResponse& response) {
  return response.has_read() || response.has_metadata() ||
         response.has_transfer() || response.has_poisoned() ||
         response.has_admitted() || response.has_profile() ||
         response.has_left() || response.has_metered() ||
         response.has_model_registered();
}

// The functions that take a message return OK or a breach of the protocol.
// `arrived` is the message's arrival time, if the message has measurements.

absl::Status Complete(State& r, uint64_t sequence)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  ConnectionState& c = r.connection;
  const uint64_t before = c.log.completed();
  if (!c.log.Complete(sequence)) {
    return Violation(absl::StrCat("completed_sequence ", sequence,
                                  ", sent up to ", c.log.sent()));
  }
  while (const auto entry = c.log.TakeCompleted()) {
    if (entry->ends_work) ++c.works_done;
    const v1::Ordered& message = entry->message->ordered();
    if (message.install().has_transfer()) {
      r.answers.uploads.Complete(message.install().transfer().transfer_id());
    } else if (message.install().has_content()) {
      r.answers.eager.Complete(message.install().content().size());
    }
  }
  if (c.log.completed() == before) return absl::OkStatus();
  NoteExecuted(r, c.log.completed());
  c.moves.fetch_add(1, std::memory_order_relaxed);
  c.progress_changed.SignalAll();
  return absl::OkStatus();
}

// Notes the value of a read that came on Bulk, if all of it has.
void NoteBulk(State& r, const ReadWait& wait)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  if (wait.abandoned || !wait.chunks.has_value() || !wait.chunks->complete()) {
    return;
  }
  NoteSeen(r, wait.sequence, {wait.destination, wait.bytes});
}

absl::Status Apply(State& r, v1::ControlResponse* response,
                   absl::Duration arrived)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  ConnectionState& c = r.connection;
  using Message = v1::ControlResponse::MessageCase;
  bool held = false;
  switch (response->message_case()) {
    case Message::kHello:
      c.stream.hello_received = true;
      return ApplyHello(r, *response);
    case Message::kRead:
      if (TakeKept(r, response->mutable_read())) return absl::OkStatus();
      if (ABSL_PREDICT_FALSE(response->has_timing())) {
        const absl::Status bad = r.answers.profiler.MarkAnswered(
            r.answers.table.reads().Find(response->read().sequence()),
            response->timing(), arrived);
        if (!bad.ok()) return Violation(bad.message());
      }
      if (ABSL_PREDICT_FALSE(debug::Has(debug::kTrace))) {
        ReadWait* const wait =
            r.answers.table.reads().Find(response->read().sequence());
        if (wait != nullptr && wait->traced != nullptr) {
          wait->traced->arrived = Now(r);
        }
      }
      if (response->read().has_bulk_bytes()) {
        const ReadWait* const wait =
            r.answers.table.reads().Find(response->read().sequence());
        if (wait != nullptr) NoteBulk(r, *wait);
      }
      if (const absl::Status bad = r.answers.table.TakeRead(
              response->reply_number(), response->mutable_read(), &held);
          !bad.ok()) {
        return bad;
      }
      if (held) {
        c.replies.Hold(response->reply_number());
      } else if (c.lineage != nullptr) {
        c.lineage->Answered(response->read().sequence());
      }
      return absl::OkStatus();
    case Message::kMetadata:
      TakeKept(r, response->mutable_metadata());
      return r.answers.table.TakeMetadata(response->metadata());
    case Message::kTransfer:
      if (const absl::Status bad =
              r.answers.uploads.Decide(response->transfer());
          !bad.ok()) {
        return Violation(bad.message());
      }
      if (response->transfer().already_held()) {
        ++r.answers.statistics.uploads_already_held;
      }
      if (response->transfer().has_refused()) {
        NoteRefused(r, response->transfer().transfer_id());
      }
      return absl::OkStatus();
    case Message::kAdmitted:
      return r.answers.table.TakeAdmitted(response->admitted(), c.lease);
    case Message::kPoisoned:
      if (!HasCode(response->poisoned())) {
        return Violation("a root error without a code");
      }
      return absl::OkStatus();
    case Message::kNeed:
      c.needed.push_back(response->need().graph_id());
      if (c.needed.size() > c.limits.max_graphs()) {
        return Violation("it needs more graphs than there are");
      }
      return absl::OkStatus();
    case Message::kProfile:
      if (const absl::Status bad = r.answers.profiler.TakeReport(
              r.index, c.lease.worker_id(), response->profile(), Now(r));
          !bad.ok()) {
        return Violation(bad.message());
      }
      r.answers.table.TakeReport(response->profile());
      return absl::OkStatus();
    case Message::kLeft:
      return ApplyLeft(r, response->mutable_left());
    case Message::kEntered:
      return Violation("entered, where nobody was to");
    case Message::kMetered:
      return r.answers.table.TakeMetered(response->metered());
    case Message::kModelRegistered:
      return r.answers.table.TakeModel(response->model_registered());
    case Message::kCancelled:
      if (!c.end.cancel_sent) {
        return Violation("cancelled, which nobody asked for");
      }
      c.end.cancelled = true;
      c.progress_changed.SignalAll();
      return absl::OkStatus();
    case Message::MESSAGE_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Take(State& r, v1::ControlResponse* response,
                  absl::Duration arrived)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  ConnectionState& c = r.connection;
  const uint64_t bytes = response->ByteSizeLong();
  r.answers.statistics.bytes_down += bytes;
  if (c.stream.hello_received == response->has_hello()) {
    return Violation("hello comes first, and once");
  }
  if (IsReply(*response) != (response->reply_number() != 0)) {
    return Violation(absl::StrCat("reply number ", response->reply_number(),
                                  " where it does not belong"));
  }
  DJINN_RETURN_IF_ERROR(Complete(r, response->completed_sequence()));
  if (response->has_window() && !response->has_hello()) {
    c.log.GrowWindow(response->window());
    r.queue.SetRoom(c.log);
    if (!r.queue.full()) c.window_changed.SignalAll();
  }
  if (!response->has_hello()) r.answers.eager.Hear(*response);
  if (ABSL_PREDICT_FALSE(response->has_link())) {
    const v1::PeerLink& link = response->link();
    c.links.Note(link.worker_id(), static_cast<double>(link.bytes_per_second()),
                 Now(r));
  }
  switch (c.replies.Take(response->reply_number(), bytes)) {
    case ReplyLog::Arrival::kNew:
      return Apply(r, response, arrived);
    case ReplyLog::Arrival::kKnown:
      return absl::OkStatus();
    case ReplyLog::Arrival::kGap:
      break;
  }
  return Violation(absl::StrCat("reply ", response->reply_number(),
                                " before those ahead of it"));
}

}  // namespace

void OnMessage(State& r, v1::ControlResponse response) {
  ConnectionState& c = r.connection;
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    LogReceived(r.index, response);
  }
  absl::Duration arrived;
  if (ABSL_PREDICT_FALSE(response.has_timing())) {
    arrived = Arrival::Take(r.context->options.clock).value_or(Now(r));
  }
  if (ABSL_PREDICT_FALSE(response.has_poisoned()) &&
      TakeLostCopy(r, response.poisoned())) {
    return r.sender.wakeup.Set();
  }
  if (ABSL_PREDICT_FALSE(LeaveForRoom(r, response))) {
    return r.sender.wakeup.Set();
  }
  if (ABSL_PREDICT_FALSE(response.has_poisoned())) {
    MutexLock lock(&c.mu);
    // The device has left this worker. The next one executes the message again.
    if (c.recovery.due && c.stream.broken &&
        IsLeft(ErrorReason(c.recovery.cause))) {
      return;
    }
  }
  absl::Status violation;
  absl::Status root_error;
  if (response.has_poisoned()) {
    if (HasCode(response.poisoned())) {
      MutexLock lock(&r.answers.mu);
      root_error = r.answers.table.StatusOf(response.poisoned());
    }
    // A worker that fetched the error of a failed fetch announces it, too.
    if (response.poisoned().reason() == "PULL_FAILED" &&
        r.context->root_errors.Knows(root_error)) {
      root_error = absl::OkStatus();
    }
  } else if (HasCode(response.admitted().refused())) {
    root_error = StatusFromDetail(response.admitted().refused());
  }
  // Noted before a waiting thread can wake with the same error.
  if (!root_error.ok()) {
    r.context->root_errors.Add(r.index, root_error);
    r.recorder.ForgetHostValues();
  }
  bool wake = false;
  bool recovered = false;
  bool diverged = false;
  std::string resumed_worker;
  ReadTable::Callbacks callbacks;
  {
    MutexLock lock(&c.mu);
    if (ABSL_PREDICT_FALSE(c.migration.going_over)) return;
    // The device has left this worker, whose answers may be wrong.
    if (ABSL_PREDICT_FALSE(c.recovery.due && c.stream.broken &&
                           IsLeft(ErrorReason(c.recovery.cause)))) {
      return;
    }
    MutexLock answers_lock(&r.answers.mu);
    const bool resumes = response.has_hello() && c.welcomed &&
                         !c.migration.gone_over && !c.recovery.due;
    violation = Take(r, &response, arrived);
    if (resumes && violation.ok()) resumed_worker = c.lease.worker_id();
    recovered = c.recovery.reporter.complete();
    diverged = std::exchange(c.recovery.diverged, false);
    // Callbacks belong to the program. A leader must not run them, because they
    // may take locks that it holds.
    if (!r.receiver.led()) callbacks = r.answers.table.reads().TakeDue();
    // A refused hello and mismatched builds have more precise errors of their
    // own.
    if (ErrorReason(violation) == kProtocolViolation ||
        (response.has_hello() && c.welcomed && !violation.ok())) {
      violation = WorkerLost(r, violation);
    } else if (response.has_hello() && !violation.ok()) {
      // The device may choose another worker.
      c.stream.broken = true;
      c.stream.break_cause = std::exchange(violation, absl::OkStatus());
      c.connection_changed.SignalAll();
    }
    wake = MigrationDue(r) || !c.needed.empty() || c.log.Next() != nullptr ||
           c.replies.Due() || r.answers.table.reads().has_due() ||
           CheckpointStepDue(r);
  }
  if (ABSL_PREDICT_FALSE(!resumed_worker.empty())) {
    log::Info("took the connection to a worker up again",
              {{"device", r.index}, {"worker", resumed_worker}});
  }
  if (ABSL_PREDICT_FALSE(recovered)) SendReport(r);
  if (ABSL_PREDICT_FALSE(diverged)) r.context->source_losses.Tell();
  Notify(callbacks);
  if (!violation.ok()) {
    FailInCallback(r, violation);
  } else if (wake) {
    r.sender.wakeup.Set();
  }
}

void OnBulk(State& r, uint64_t transfer_id, uint64_t offset,
            absl::Span<const absl::string_view> pieces) {
  ConnectionState& c = r.connection;
  c.moves.fetch_add(1, std::memory_order_relaxed);
  bool copied = false;
  const absl::StatusOr<std::shared_ptr<ReadWait>> taken =
      r.answers.TakeChunk(transfer_id, offset, pieces, &copied);
  if (!taken.ok()) {
    absl::Status lost;
    {
      MutexLock lock(&c.mu);
      lost = WorkerLost(r, taken.status());
    }
    return FailInCallback(r, std::move(lost));
  }
  ReadWait* const wait = taken->get();
  if (wait == nullptr) return;
  bool wake = false;
  ReadTable::Callbacks callbacks;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    ReadTable& reads = r.answers.table.reads();
    if (copied) --wait->copying;
    wait->chunks->Copied();
    if (wait->announced && wait->chunks->complete()) {
      reads.EraseBulk(transfer_id);
      if (c.lineage != nullptr) {
        NoteBulk(r, *wait);
        c.lineage->Answered(wait->sequence);
      }
      c.replies.Release(wait->reply_number, wait->bytes);
      // The value's last byte arrived.
      if (ABSL_PREDICT_FALSE(wait->marks != nullptr)) {
        wait->marks->arrived = Now(r);
      }
      if (ABSL_PREDICT_FALSE(wait->traced != nullptr)) {
        wait->traced->arrived = Now(r);
      }
      reads.Finish(wait);
      // A leader's locks may conflict with callbacks, as in OnMessage().
      if (!r.receiver.led()) callbacks = reads.TakeDue();
      wake = c.replies.Due() || MigrationDue(r) || reads.has_due() ||
             CheckpointStepDue(r);
    }
    if (wait->abandoned) wait->changed.SignalAll();
  }
  Notify(callbacks);
  if (wake) r.sender.wakeup.Set();
}

}  // namespace djinn::replica
