// Handles the worker's messages, and its loss.
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/message_lines.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/debug_flags.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"

namespace djinn {
namespace {

// Returns whether the response is numbered, kept and acknowledged.
bool IsReply(const v1::ControlResponse& response) {
  return response.has_read() || response.has_metadata() ||
         response.has_transfer() || response.has_poisoned() ||
         response.has_admitted() || response.has_profile() ||
         response.has_left() || response.has_metered() ||
         response.has_model_registered();
}

}  // namespace

void RemoteDevice::OnMessage(v1::ControlResponse response) {
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    LogReceived(index_, response);
  }
  absl::Duration arrived;
  if (ABSL_PREDICT_FALSE(response.has_timing())) {
    arrived = Arrival::Take(context_->options.clock).value_or(Now());
  }
  absl::Status violation;
  absl::Status root_error;
  if (response.has_poisoned()) {
    if (HasCode(response.poisoned())) {
      MutexLock lock(&answers_.mu);
      root_error = answers_.table.StatusOf(response.poisoned());
    }
  } else if (HasCode(response.admitted().refused())) {
    root_error = StatusFromDetail(response.admitted().refused());
  }
  // Noted before a waiting thread can wake with the same error.
  if (!root_error.ok()) {
    context_->root_errors.Add(index_, root_error);
    recorder_.ForgetHostValues();
  }
  bool wake = false;
  ReadTable::Callbacks callbacks;
  {
    MutexLock lock(&mu_);
    if (ABSL_PREDICT_FALSE(going_over_)) return;
    MutexLock answers_lock(&answers_.mu);
    violation = Take(&response, arrived);
    // Callbacks belong to the program. A leader must not run them, because they
    // may take locks that it holds.
    if (!receiver_.led()) callbacks = answers_.table.reads().TakeDue();
    // A refused hello and mismatched builds have more precise errors of their
    // own.
    if (ErrorReason(violation) == kProtocolViolation ||
        (response.has_hello() && welcomed_ && !violation.ok())) {
      violation = WorkerLost(violation);
    }
    wake = MigrationDue() || !needed_.empty() || log_.Next() != nullptr ||
           replies_.Due() || answers_.table.reads().has_due();
  }
  Notify(callbacks);
  if (!violation.ok()) {
    FailInCallback(violation);
  } else if (wake) {
    wakeup_.Set();
  }
}

void RemoteDevice::OnBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  bool copied = false;
  const absl::StatusOr<std::shared_ptr<ReadWait>> taken =
      answers_.TakeChunk(transfer_id, offset, pieces, &copied);
  if (!taken.ok()) return FailInCallback(taken.status());
  ReadWait* const wait = taken->get();
  if (wait == nullptr) return;
  bool wake = false;
  ReadTable::Callbacks callbacks;
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    ReadTable& reads = answers_.table.reads();
    if (copied) --wait->copying;
    wait->chunks->Copied();
    if (wait->announced && wait->chunks->complete()) {
      reads.EraseBulk(transfer_id);
      replies_.Release(wait->reply_number, wait->bytes);
      // The value's last byte arrived.
      if (ABSL_PREDICT_FALSE(wait->marks != nullptr)) {
        wait->marks->arrived = Now();
      }
      reads.Finish(wait);
      // A leader's locks may conflict with callbacks, as in OnMessage().
      if (!receiver_.led()) callbacks = reads.TakeDue();
      wake = replies_.Due() || MigrationDue() || reads.has_due();
    }
    if (wait->abandoned) wait->changed.SignalAll();
  }
  Notify(callbacks);
  if (wake) wakeup_.Set();
}

absl::Status RemoteDevice::Take(v1::ControlResponse* response,
                                absl::Duration arrived) {
  const uint64_t bytes = response->ByteSizeLong();
  answers_.statistics.bytes_down += bytes;
  if (link_.hello_received == response->has_hello()) {
    return Violation("hello comes first, and once");
  }
  if (IsReply(*response) != (response->reply_number() != 0)) {
    return Violation(absl::StrCat("reply number ", response->reply_number(),
                                  " where it does not belong"));
  }
  DJINN_RETURN_IF_ERROR(Complete(response->completed_sequence()));
  if (response->has_window() && !response->has_hello()) {
    log_.GrowWindow(response->window());
    queue_.SetRoom(log_);
    if (window_waiters_ > 0) window_changed_.SignalAll();
  }
  if (!response->has_hello()) answers_.eager.Hear(*response);
  if (ABSL_PREDICT_FALSE(response->has_link())) {
    const v1::PeerLink& link = response->link();
    links_.Note(link.worker_id(), static_cast<double>(link.bytes_per_second()),
                Now());
  }
  switch (replies_.Take(response->reply_number(), bytes)) {
    case ReplyLog::Arrival::kNew:
      return Apply(response, arrived);
    case ReplyLog::Arrival::kKnown:
      return absl::OkStatus();
    case ReplyLog::Arrival::kGap:
      break;
  }
  return Violation(absl::StrCat("reply ", response->reply_number(),
                                " before those ahead of it"));
}

absl::Status RemoteDevice::Complete(uint64_t sequence) {
  const uint64_t before = log_.completed();
  if (!log_.Complete(sequence)) {
    return Violation(absl::StrCat("completed_sequence ", sequence,
                                  ", sent up to ", log_.sent()));
  }
  while (const auto entry = log_.TakeCompleted()) {
    if (entry->ends_work) ++works_done_;
    const v1::Ordered& message = entry->message->ordered();
    if (message.install().has_transfer()) {
      answers_.uploads.Complete(message.install().transfer().transfer_id());
    } else if (message.install().has_content()) {
      answers_.eager.Complete(message.install().content().size());
    }
  }
  if (log_.completed() == before) return absl::OkStatus();
  progress_.fetch_add(1, std::memory_order_relaxed);
  progress_changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Apply(v1::ControlResponse* response,
                                 absl::Duration arrived) {
  using Message = v1::ControlResponse::MessageCase;
  bool held = false;
  switch (response->message_case()) {
    case Message::kHello:
      link_.hello_received = true;
      return ApplyHello(*response);
    case Message::kRead:
      if (ABSL_PREDICT_FALSE(response->has_timing())) {
        const absl::Status bad = answers_.profiler.MarkAnswered(
            answers_.table.reads().Find(response->read().sequence()),
            response->timing(), arrived);
        if (!bad.ok()) return Violation(bad.message());
      }
      if (const absl::Status bad = answers_.table.TakeRead(
              response->reply_number(), response->mutable_read(), &held);
          !bad.ok()) {
        return bad;
      }
      if (held) replies_.Hold(response->reply_number());
      return absl::OkStatus();
    case Message::kMetadata:
      return answers_.table.TakeMetadata(response->metadata());
    case Message::kTransfer:
      if (const absl::Status bad =
              answers_.uploads.Decide(response->transfer());
          !bad.ok()) {
        return Violation(bad.message());
      }
      if (response->transfer().already_held()) {
        ++answers_.statistics.uploads_already_held;
      }
      return absl::OkStatus();
    case Message::kAdmitted:
      return answers_.table.TakeAdmitted(response->admitted(), lease_);
    case Message::kPoisoned:
      if (!HasCode(response->poisoned())) {
        return Violation("a root error without a code");
      }
      return absl::OkStatus();
    case Message::kNeed:
      needed_.push_back(response->need().graph_id());
      if (needed_.size() > limits_.max_graphs()) {
        return Violation("it needs more graphs than there are");
      }
      return absl::OkStatus();
    case Message::kProfile:
      if (const absl::Status bad = answers_.profiler.TakeReport(
              index_, lease_.worker_id(), response->profile(), Now());
          !bad.ok()) {
        return Violation(bad.message());
      }
      answers_.table.TakeReport(response->profile());
      return absl::OkStatus();
    case Message::kLeft:
      return ApplyLeft(response->mutable_left());
    case Message::kEntered:
      return Violation("entered, where nobody was to");
    case Message::kMetered:
      return answers_.table.TakeMetered(response->metered());
    case Message::kModelRegistered:
      return answers_.table.TakeModel(response->model_registered());
    case Message::kCancelled:
      if (!end_.cancel_sent)
        return Violation("cancelled, which nobody asked for");
      end_.cancelled = true;
      progress_changed_.SignalAll();
      return absl::OkStatus();
    case Message::MESSAGE_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void RemoteDevice::OnLeaseEnded(const std::string& lease_id,
                                const std::string& reason) {
  absl::Status lost;
  {
    MutexLock lock(&mu_);
    if (migration_ != nullptr &&
        migration_->request.to().lease().lease_id() == lease_id) {
      migration_->given_up =
          MakeError(absl::StatusCode::kAborted, "LEASE_ENDED",
                    absl::StrCat("the coordinator ended the lease of worker ",
                                 migration_->request.to().lease().worker_id(),
                                 ": ", reason));
      connection_changed_.SignalAll();
      wakeup_.Set();
      return;
    }
    if (lease_.lease_id().empty() || lease_.lease_id() != lease_id) return;
    if (going_over_) return;  // another lease takes its place
    lost = WorkerLost(absl::AbortedError(
        absl::StrCat("the coordinator ended the lease: ", reason)));
  }
  Fail(lost);
}

void RemoteDevice::FailWith(const absl::Status& failure) {
  Fail(failure, /*by_itself=*/false);
}

absl::Status RemoteDevice::failure() const {
  MutexLock lock(&mu_);
  return end_.usable() ? absl::OkStatus() : end_.Reason();
}

void RemoteDevice::Fail(absl::Status failure, bool by_itself) {
  receiver_.Enter();
  FailInCallback(std::move(failure), by_itself);
  receiver_.Leave();
}

void RemoteDevice::FailInCallback(absl::Status failure, bool by_itself) {
  ClientStream* stream = nullptr;
  ReadTable::Callbacks callbacks;
  bool counts = by_itself;
  bool failed = false;
  bool unreachable = false;
  if (by_itself) {
    {
      MutexLock lock(&mu_);
      if (end_.stopped || !end_.failing.ok()) return;
    }
    // A thread that sees this replica fail must see the others fail.
    role_.on_failure(failure);
  }
  {
    MutexLock lock(&mu_);
    if (end_.stopped) return;
    // The loss of an additional replica that never answered is no failure of
    // the program's.
    if (role_.member > 0 && !welcomed_) counts = false;
    failed = end_.failing.ok();
    if (failed) {
      end_.failing = failure;
    } else if (ErrorMetadataValue(end_.failing, "worker") ==
               lease_.worker_id()) {
      // This worker failed in two ways at once, and the other failure was
      // reported. If another replica failed at the same time, its failure may
      // have arrived here first. Each replica then reports its own.
      counts = false;
    }
  }
  if (failed) {
    // The recorder fails before any thread wakes with the failure.
    recorder_.Fail(failure);
    const bool records = recorder_.HasOpenSegments();
    MutexLock lock(&mu_);
    if (end_.failure.ok()) {
      end_.failure = failure;
      unreachable = by_itself && (unreached_ || !welcomed_);
      end_.lost_work =
          !queue_.empty() || queue_.held() || !log_.empty() || records;
      WakeAll();
      callbacks = answers_.Fail(failure);
      stream = receiver_.stream();
    }
  }
  if (counts) context_->root_errors.AddReported(index_, failure);
  // A replica added since the first call does not know of the failure.
  if (by_itself) role_.on_failure(failure);
  Notify(callbacks);
  if (stream != nullptr) {
    stream->Close(absl::CancelledError("the client gave the worker up"));
  }
  if (failed) GiveLeaseBack(unreachable);
  wakeup_.Set();
}

}  // namespace djinn
