// What the worker says, and the loss of the worker.
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/debug_flags.h"
#include "client_lib/session/message_lines.h"
#include "client_lib/session/remote_device.h"
#include "common/content_proof.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

constexpr char kProtocolViolation[] = "PROTOCOL_VIOLATION";

// An error must be one.
bool HasCode(const v1::ErrorDetail& detail) {
  return detail.code() >= 1 && detail.code() <= 16;
}

absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInternal, kProtocolViolation,
                   absl::StrCat("the worker broke the protocol: ", what));
}

// Whether the response is numbered, kept and acknowledged.
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
      MutexLock lock(&mu_);
      root_error = call_sites_.StatusOf(response.poisoned());
    }
  } else if (HasCode(response.admitted().refused())) {
    root_error = StatusFromDetail(response.admitted().refused());
  }
  // Noted before whoever waits can wake with the same error.
  if (!root_error.ok()) context_->root_errors.Add(index_, root_error);
  bool wake = false;
  ReadTable::Callbacks callbacks;
  {
    MutexLock lock(&mu_);
    if (ABSL_PREDICT_FALSE(going_over_)) return;
    arrived_ = arrived;
    // What was computed here may derive from what failed there.
    if (!root_error.ok()) host_values_.Clear();
    violation = Take(&response);
    // They are the program's: not for a thread that waits, whose locks they may
    // take.
    if (attending_ == 0) callbacks = reads_.TakeDue();
    // A refused hello, and builds that do not belong together, say more by
    // themselves.
    if (ErrorReason(violation) == kProtocolViolation ||
        (response.has_hello() && welcomed_ && !violation.ok())) {
      violation = WorkerLost(violation);
    }
    wake = MigrationDue() || !needed_.empty() || log_.Next() != nullptr ||
           replies_.Due() || reads_.has_due();
  }
  Notify(callbacks);
  if (!violation.ok()) {
    FailInCallback(violation);
  } else if (wake) {
    wakeup_.Set();
  }
}

absl::Status RemoteDevice::Take(v1::ControlResponse* response) {
  const uint64_t bytes = response->ByteSizeLong();
  statistics_.bytes_down += bytes;
  if (hello_received_ == response->has_hello()) {
    return Violation("hello comes first, and once");
  }
  if (IsReply(*response) != (response->reply_number() != 0)) {
    return Violation(absl::StrCat("reply number ", response->reply_number(),
                                  " where it does not belong"));
  }
  DJINN_RETURN_IF_ERROR(Complete(response->completed_sequence()));
  if (response->has_window() && !response->has_hello()) {
    log_.GrowWindow(response->window());
    if (window_waiters_ > 0) window_changed_.SignalAll();
  }
  if (!response->has_hello()) eager_.Hear(*response);
  if (ABSL_PREDICT_FALSE(response->has_link())) {
    const v1::PeerLink& link = response->link();
    links_.Note(link.worker_id(), static_cast<double>(link.bytes_per_second()),
                Now());
  }
  switch (replies_.Take(response->reply_number(), bytes)) {
    case ReplyLog::Arrival::kNew:
      return Apply(response);
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
      uploads_.Complete(message.install().transfer().transfer_id());
    } else if (message.install().has_content()) {
      eager_.Complete(message.install().content().size());
    }
  }
  if (log_.completed() == before) return absl::OkStatus();
  ++progress_;
  progress_changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Apply(v1::ControlResponse* response) {
  using Message = v1::ControlResponse::MessageCase;
  switch (response->message_case()) {
    case Message::kHello:
      hello_received_ = true;
      return ApplyHello(*response);
    case Message::kRead:
      if (ABSL_PREDICT_FALSE(response->has_timing())) {
        const absl::Status bad = MarkAnswered(*response, arrived_);
        if (!bad.ok()) return Violation(bad.message());
      }
      return ApplyRead(response->reply_number(), response->mutable_read());
    case Message::kMetadata:
      return ApplyMetadata(response->metadata());
    case Message::kTransfer:
      if (const absl::Status bad = uploads_.Decide(response->transfer());
          !bad.ok()) {
        return Violation(bad.message());
      }
      if (response->transfer().already_held()) {
        ++statistics_.uploads_already_held;
      }
      return absl::OkStatus();
    case Message::kAdmitted:
      return ApplyAdmitted(response->admitted());
    case Message::kPoisoned:
      if (!HasCode(response->poisoned())) {
        return Violation("a root error without a code");
      }
      return absl::OkStatus();
    case Message::kNeed:
      needed_.push_back(response->need().structure_id());
      if (needed_.size() > limits_.max_structures()) {
        return Violation("it needs more structures than there are");
      }
      return absl::OkStatus();
    case Message::kProfile:
      if (const absl::Status bad = ApplyProfile(response->profile());
          !bad.ok()) {
        return Violation(bad.message());
      }
      return absl::OkStatus();
    case Message::kLeft:
      return ApplyLeft(response->mutable_left());
    case Message::kEntered:
      return Violation("entered, where nobody was to");
    case Message::kMetered:
      if (!ApplyMetered(response->metered())) {
        return Violation("said what was used, which nobody asked");
      }
      return absl::OkStatus();
    case Message::kModelRegistered:
      if (response->model_registered().has_refused() &&
          !HasCode(response->model_registered().refused())) {
        return Violation("a refused model without a code");
      }
      if (!ApplyModel(response->model_registered())) {
        return Violation("answered for a model, which nobody registers");
      }
      return absl::OkStatus();
    case Message::kCancelled:
      if (!cancel_sent_) return Violation("cancelled, which nobody asked for");
      cancelled_ = true;
      progress_changed_.SignalAll();
      return absl::OkStatus();
    case Message::MESSAGE_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status RemoteDevice::ApplyMetadata(const v1::RunMetadata& reply) {
  auto found = metadata_.extract(reply.sequence());
  if (found.empty()) {
    return Violation(absl::StrCat("metadata of ", reply.sequence(),
                                  ", which asked for none"));
  }
  MetadataWait& wait = *found.mapped();
  if (reply.has_error()) {
    wait.error = call_sites_.StatusOf(reply.error());
    if (!HasCode(reply.error()))
      return Violation("a metadata error without a code");
  } else {
    const auto count = static_cast<size_t>(reply.results_size());
    if (count != wait.expected ||
        reply.storage_bytes_size() != reply.results_size()) {
      return Violation(absl::StrCat(
          "metadata of ", count, " results and ", reply.storage_bytes_size(),
          " storages for ", wait.expected, " unknown results"));
    }
    for (int i = 0; i < reply.results_size(); ++i) {
      const absl::StatusOr<srg::TensorView> view =
          srg::FromProto(reply.results(i));
      if (!view.ok()) return Violation(view.status().message());
      const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(*view);
      if (!extent.ok()) return Violation(extent.status().message());
      if (*extent > reply.storage_bytes(i)) {
        return Violation(absl::StrCat("a result of ", *extent,
                                      " bytes in a storage of ",
                                      reply.storage_bytes(i)));
      }
      wait.results.push_back({*view, reply.storage_bytes(i)});
    }
  }
  wait.done = true;
  wait.changed.SignalAll();
  return absl::OkStatus();
}

absl::Status RemoteDevice::ApplyAdmitted(const v1::Admitted& admitted) {
  const auto found = defining_.find(admitted.structure_id());
  if (found == defining_.end()) {
    return Violation(absl::StrCat("structure ", admitted.structure_id(),
                                  " was answered and not defined"));
  }
  const std::string own = std::move(found->second);
  defining_.erase(found);
  if (admitted.has_refused()) {
    if (HasCode(admitted.refused())) return absl::OkStatus();
    return Violation("a refused structure without a code");
  }
  if (admitted.cache_hit()) ++statistics_.plan_cache_hits;
  admitted_.push_back(admitted.structure_id());
  if (admitted.fingerprint() == own) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInternal, "FINGERPRINT_MISMATCH",
      absl::StrCat("worker ", lease_.worker_id(), " at ",
                   lease_.worker_address(), " understood structure ",
                   admitted.structure_id(), " as ",
                   absl::BytesToHexString(admitted.fingerprint()),
                   ", it was sent as ", absl::BytesToHexString(own)),
      {{"worker", lease_.worker_id()}});
}

absl::Status RemoteDevice::ApplyRead(uint64_t number, v1::ReadReply* reply) {
  // Those nobody waits for any more are here, too.
  const std::shared_ptr<ReadWait> wait = reads_.TakeAnswered(reply->sequence());
  if (wait == nullptr) {
    return Violation(absl::StrCat("an answer to ", reply->sequence(),
                                  ", which reads nothing or was answered"));
  }
  switch (reply->outcome_case()) {
    case v1::ReadReply::kValue:
      if (reply->value().size() != wait->bytes) {
        return Violation(absl::StrCat("a value of ", reply->value().size(),
                                      " bytes for a read of ", wait->bytes));
      }
      wait->value.emplace(std::move(*reply->mutable_value()));
      FinishRead(wait.get());
      break;
    case v1::ReadReply::kBulkBytes:
      if (wait->transfer_id == 0 || reply->bulk_bytes() != wait->bytes) {
        return Violation(absl::StrCat(
            reply->bulk_bytes(), " bulk bytes for a read of ", wait->bytes));
      }
      // Some or all may be here already: the streams are not ordered.
      wait->announced = true;
      wait->reply_number = number;
      if (wait->chunks->complete()) {
        FinishRead(wait.get());
      } else {
        replies_.Hold(number);
      }
      break;
    case v1::ReadReply::kError:
      if (!HasCode(reply->error()))
        return Violation("a read error without a code");
      wait->error = call_sites_.StatusOf(reply->error());
      FinishRead(wait.get());
      break;
    case v1::ReadReply::OUTCOME_NOT_SET:
      return Violation("a read reply without an outcome");
  }
  if (wait->done && wait->transfer_id != 0) {
    reads_.EraseBulk(wait->transfer_id);
  }
  return absl::OkStatus();
}

absl::Status RemoteDevice::WorkerLost(const absl::Status& cause) {
  const std::string cause_reason = ErrorReason(cause);
  const absl::string_view words =
      cause.ok() ? absl::string_view("it ended the stream") : cause.message();
  ErrorMetadata metadata = {{"worker", lease_.worker_id()},
                            {"address", lease_.worker_address()},
                            {"cause", cause_reason}};
  if (!welcomed_ && !cause_reason.empty()) {
    // Refused rather than lost: the reason is what the program can act upon.
    return MakeError(cause.code(), cause_reason,
                     absl::StrCat("worker ", lease_.worker_id(), " at ",
                                  lease_.worker_address(), ": ", words),
                     std::move(metadata));
  }
  return MakeError(absl::StatusCode::kUnavailable, "WORKER_LOST",
                   absl::StrCat("worker ", lease_.worker_id(), " at ",
                                lease_.worker_address(), " is lost: ", words),
                   std::move(metadata));
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
    if (going_over_) return;  // another one takes its place
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
  return usable_ ? absl::OkStatus() : Unusable();
}

void RemoteDevice::Fail(absl::Status failure, bool by_itself) {
  {
    MutexLock lock(&mu_);
    EnterStream();
  }
  FailInCallback(std::move(failure), by_itself);
  MutexLock lock(&mu_);
  LeaveStream();
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
      if (stopped_ || !failure_.ok()) return;
    }
    // Whoever finds this one failed finds the others so.
    role_.on_failure(failure);
  }
  {
    MutexLock lock(&mu_);
    if (stopped_) return;
    // A further member that was not to be is no failure of the program's.
    if (role_.member > 0 && !welcomed_) counts = false;
    if (failure_.ok()) {
      failure_ = failure;
      usable_ = false;
      failed = true;
      unreachable = by_itself && (unreached_ || !welcomed_);
      lost_work_ = !queue_.empty() || processing_ || !log_.empty() ||
                   recorder_.HasOpenSegments();
      WakeAll();
      callbacks = reads_.TakeDue();
      stream = stream_.get();
    } else if (ErrorMetadataValue(failure_, "worker") == lease_.worker_id()) {
      // It failed in two ways at once, of which the other was said. A member
      // that failed at the same time is another matter: this one's failure may
      // have reached it first, too, and each has to say its own.
      counts = false;
    }
  }
  if (counts) context_->root_errors.AddReported(index_, failure);
  // A member that came since then was not told, and may have seen no failure.
  if (by_itself) role_.on_failure(failure);
  Notify(callbacks);
  if (stream != nullptr) {
    stream->Close(absl::CancelledError("the client gave the worker up"));
  }
  if (failed) GiveLeaseBack(unreachable);
  wakeup_.Set();
}

}  // namespace djinn
