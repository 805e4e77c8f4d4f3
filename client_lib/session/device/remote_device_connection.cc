// Connects to the worker: requests the lease, opens one stream after another,
// and resumes on each new one.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/stream/backoff.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Limit on uploads named in a lease request.
constexpr int kMaxHints = 64;
// An attempt to connect takes this share of the time left, and at least
// kMinAttempt.
constexpr int kAttemptShare = 3;
constexpr absl::Duration kMinAttempt = absl::Seconds(1);
// Time that a stream may take to end.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
// Time by which the coordinator may report the reason for a session's end later
// than the worker.
constexpr absl::Duration kReasonTimeout = absl::Seconds(2);

}  // namespace

void RemoteDevice::Open() {
  bool leased;
  bool again;
  absl::Status dropped;
  {
    MutexLock lock(&mu_);
    leased = !lease_.lease_id().empty();
    again = welcomed_;
    if (link_.broken && IsDropped(link_.break_cause)) {
      const Deadline deadline(kReasonTimeout, context_->options.clock);
      while (end_.wanted() && !deadline.passed()) {
        WaitUntil(&connection_changed_, &mu_, deadline);
      }
      dropped = WorkerLost(link_.break_cause);
    }
  }
  // Does nothing if OnLeaseEnded() has reported a more precise failure.
  if (!dropped.ok()) return Fail(std::move(dropped));
  if (!leased) {
    absl::Status status = RequestLease();
    if (!status.ok()) {
      Fail(std::move(status));
      return;
    }
    bool failed;
    {
      MutexLock lock(&mu_);
      failed = !end_.failure.ok();
    }
    // The device failed while it had no lease to return.
    if (failed) return GiveLeaseBack(/*unreachable=*/false);
  }
  Reach(again ? context_->options.resume_timeout
              : context_->options.connect_timeout);
}

absl::Status RemoteDevice::RequestLease() {
  v1::LeaseRequest request;
  request.set_virtual_device(static_cast<uint32_t>(index_));
  const auto& policies = context_->options.device_placement_policies;
  if (const auto found = policies.find(index_); found != policies.end()) {
    request.set_placement_policy(found->second);
  }
  request.set_member(static_cast<uint32_t>(role_.member));
  request.set_needed_bytes(role_.needed_bytes);
  queue_.Visit([&](Work& work) {
    const auto* install = std::get_if<InstallWork>(&work.action);
    if (install == nullptr || install->wait == nullptr ||
        request.contents_size() == kMaxHints) {
      return;
    }
    v1::ContentHint* const hint = request.add_contents();
    hint->set_hash_high(install->hash.high);
    hint->set_hash_low(install->hash.low);
    hint->set_size_bytes(install->source.bytes.size());
  });
  absl::StatusOr<v1::LeaseGranted> granted =
      context_->link->RequestLease(request, context_->options.connect_timeout);
  if (ErrorReason(granted.status()) == "TOO_LARGE" &&
      request.contents_size() > 0) {
    // If no worker can hold the contents, their upload fails with limit and
    // use. That need not cost the session its device.
    request.clear_contents();
    granted = context_->link->RequestLease(request,
                                           context_->options.connect_timeout);
  }
  DJINN_RETURN_IF_ERROR(granted.status());
  log::Debug("device has a lease", {{"device", index_},
                                    {"worker", granted->lease().worker_id()},
                                    {"reason", granted->placement_reason()}});
  MutexLock lock(&mu_);
  lease_ = granted->lease();
  placement_.worker_id = lease_.worker_id();
  placement_.reason = granted->placement_reason();
  return absl::OkStatus();
}

void RemoteDevice::GiveLeaseBack(bool unreachable) {
  std::string lease_id;
  {
    MutexLock lock(&mu_);
    if (lease_.lease_id().empty() || std::exchange(lease_given_back_, true)) {
      return;
    }
    lease_id = lease_.lease_id();
  }
  context_->link->ReturnLease(lease_id, unreachable);
}

void RemoteDevice::Reach(absl::Duration timeout) {
  Clock* const clock = context_->options.clock;
  const Deadline end(timeout, clock);
  Backoff pauses(context_->options.random);
  absl::Status lost;
  for (;;) {
    if (!DropStream()) return;
    absl::Status status =
        TryOpen(std::max(end.left() / kAttemptShare, kMinAttempt));
    MutexLock lock(&mu_);
    if (!end_.wanted() || status.ok()) return;
    lost = WorkerLost(status);
    if (!MayPass(status)) break;
    const Deadline pause(std::min(pauses.Next(), end.left()), clock);
    while (end_.wanted() && !pause.passed()) {
      WaitUntil(&connection_changed_, &mu_, pause);
    }
    if (!end_.wanted()) return;
    if (!end.passed()) continue;
    lost = WorkerLost(absl::Status(
        status.code(), absl::StrCat(status.message(), " (tried again for ",
                                    absl::FormatDuration(timeout), ")")));
    break;
  }
  {
    MutexLock lock(&mu_);
    unreached_ = true;
  }
  Fail(std::move(lost));
}

absl::Status RemoteDevice::TryOpen(absl::Duration timeout) {
  v1::Lease lease;
  {
    MutexLock lock(&mu_);
    lease = lease_;
  }
  const Deadline deadline(timeout, context_->options.clock);
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<ClientStream> owned,
      context_->connector->Connect(lease, context_->session_id));
  auto request = std::make_shared<v1::ControlRequest>();
  v1::ClientHello* const hello = request->mutable_hello();
  *hello = HelloFor(context_->session_id, lease);
  ClientStream* const stream = owned.get();
  {
    MutexLock lock(&mu_);
    if (!end_.wanted()) return absl::CancelledError("given up");
    if (welcomed_) {
      hello->mutable_resume()->set_sent_sequence(log_.sent());
      hello->mutable_resume()->set_acknowledged_reply(replies_.handled());
      replies_.Acknowledged(replies_.handled());
    }
    link_.Begin(*stream);
    receiver_.Begin(std::move(owned));
    placement_.transport = std::string(stream->transport());
  }
  stream->Start(this);
  // A refusal arrives as the end of the stream, with more detail.
  (void)stream->Send(std::move(request));
  {
    MutexLock lock(&mu_);
    while (end_.wanted() && !receiver_.connected() && !link_.broken &&
           !deadline.passed()) {
      WaitUntil(&connection_changed_, &mu_, deadline);
    }
    if (!end_.wanted()) return absl::CancelledError("given up");
    if (link_.broken) return link_.break_cause;
    if (!receiver_.connected()) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    }
  }
  if (!encoder_.begun()) BeginEncoding(/*next_sequence=*/1);
  return absl::OkStatus();
}

bool RemoteDevice::DropStream(const absl::Status& why) {
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&mu_);
    receiver_.SetConnected(false);
    stream = receiver_.stream();
  }
  if (stream == nullptr) return true;
  stream->Close(why);
  const Deadline deadline(kEndTimeout, context_->options.clock);
  {
    MutexLock lock(&mu_);
    while (!link_.closed && !deadline.passed()) {
      WaitUntil(&connection_changed_, &mu_, deadline);
    }
  }
  std::unique_ptr<ClientStream> old;
  if (receiver_.End(deadline, &old)) return true;
  absl::Status stuck;
  {
    MutexLock lock(&mu_);
    stuck =
        WorkerLost(absl::InternalError("a transfer did not leave its stream"));
  }
  Fail(std::move(stuck));
  return false;
}

absl::Status RemoteDevice::ApplyHello(const v1::ControlResponse& response) {
  const v1::WorkerHello& hello = response.hello();
  DJINN_RETURN_IF_ERROR(CheckHello(hello, lease_));
  limits_ = hello.limits();
  uploader_.SetMemoryBytes(limits_.memory_bytes());
  facts_ = {hello.worker_id(), hello.numerics(), hello.speed(),
            hello.generator_bytes()};
  if (welcomed_) {
    DJINN_RETURN_IF_ERROR(ResumeFrom(hello));
    // The broken stream may have lost the last window.
    log_.GrowWindow(response.window());
  } else {
    log_.SetWindow(response.window());
    answers_.eager.Begin(hello);
    uploader_.SetInlineBytes(limits_.inline_bytes());
  }
  queue_.SetRoom(log_);
  answers_.eager.Hear(response);
  welcomed_ = true;
  receiver_.SetConnected(true);
  connection_changed_.SignalAll();
  window_changed_.SignalAll();
  answers_.OnConnected();
  return absl::OkStatus();
}

void RemoteDevice::BeginEncoding(uint64_t next_sequence) {
  v1::SessionLimits limits;
  {
    MutexLock lock(&mu_);
    limits = limits_;
  }
  encoder_.BeginAt(limits, next_sequence);
}

absl::Status RemoteDevice::ResumeFrom(const v1::WorkerHello& hello) {
  if (!log_.Rewind(hello.received_sequence())) {
    return MakeError(
        absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
        absl::StrCat("the worker broke the protocol: it received up to ",
                     hello.received_sequence(), " of ", log_.sent(),
                     ", and executed ", log_.completed()));
  }
  // The worker asks again for the graphs that it still needs.
  needed_.clear();
  answers_.uploads.Resume(hello);
  if (std::exchange(gone_over_, false)) return absl::OkStatus();
  ++answers_.statistics.resumes;
  log::Info("took the connection to a worker up again",
            {{"device", index_}, {"worker", lease_.worker_id()}});
  return absl::OkStatus();
}

void RemoteDevice::OnClosed(absl::Status status) {
  absl::Status lost;
  {
    MutexLock lock(&mu_);
    link_.closed = true;
    receiver_.SetConnected(false);
    connection_changed_.SignalAll();
    progress_changed_.SignalAll();
    if (end_.cancelled || going_over_) return;  // the worker's last message
    if (end_.failure.ok() && !end_.stopped &&
        (MayPass(status) || (welcomed_ && IsDropped(status)))) {
      if (!link_.broken) link_.break_cause = status;
      link_.broken = true;
    } else {
      lost = WorkerLost(status);
    }
  }
  if (!lost.ok()) FailInCallback(std::move(lost));
  wakeup_.Set();
}

}  // namespace djinn
