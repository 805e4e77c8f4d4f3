// Connects to the worker: requests the lease, opens one stream after another,
// and resumes on each new one.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/stream/backoff.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::replica {
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
// Number of refused connections after which a worker that a device can recover
// from is lost.
constexpr int kMostRefusals = 2;

}  // namespace

absl::Status RequestLease(State& r) {
  ConnectionState& c = r.connection;
  v1::LeaseRequest request;
  request.set_virtual_device(static_cast<uint32_t>(r.index));
  const auto& policies = r.context->options.device_placement_policies;
  if (const auto found = policies.find(r.index); found != policies.end()) {
    request.set_placement_policy(found->second);
  }
  request.set_member(static_cast<uint32_t>(r.role.member));
  request.set_needed_bytes(r.role.needed_bytes);
  r.queue.Visit([&](Work& work) {
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
  {
    MutexLock lock(&c.mu);
    c.ended_leases.emplace();
  }
  absl::StatusOr<v1::LeaseGranted> granted = r.context->link->RequestLease(
      request, r.context->options.connect_timeout);
  if (ErrorReason(granted.status()) == "TOO_LARGE" &&
      request.contents_size() > 0) {
    // If no worker can hold the contents, their upload fails with limit and
    // use. That need not cost the session its device.
    request.clear_contents();
    granted = r.context->link->RequestLease(request,
                                            r.context->options.connect_timeout);
  }
  if (granted.ok()) {
    log::Debug("device has a lease", {{"device", r.index},
                                      {"worker", granted->lease().worker_id()},
                                      {"reason", granted->placement_reason()}});
  }
  MutexLock lock(&c.mu);
  const auto ended = *std::exchange(c.ended_leases, std::nullopt);
  DJINN_RETURN_IF_ERROR(granted.status());
  c.lease = granted->lease();
  c.lease_given_back = false;
  c.placement.worker_id = c.lease.worker_id();
  c.placement.reason = granted->placement_reason();
  const auto end = ended.find(c.lease.lease_id());
  return end == ended.end() ? absl::OkStatus() : LeaseEnded(r, end->second);
}

absl::Status TryOpen(State& r, absl::Duration timeout) {
  ConnectionState& c = r.connection;
  v1::Lease lease;
  {
    MutexLock lock(&c.mu);
    lease = c.lease;
  }
  const Deadline deadline(timeout, r.context->options.clock);
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<ClientStream> owned,
      r.context->connector->Connect(lease, r.context->session_id));
  auto request = std::make_shared<v1::ControlRequest>();
  v1::ClientHello* const hello = request->mutable_hello();
  *hello = HelloFor(r.context->session_id, lease);
  ClientStream* const stream = owned.get();
  {
    MutexLock lock(&c.mu);
    if (!c.end.wanted()) return absl::CancelledError("given up");
    if (c.welcomed && !c.recovery.due) {
      hello->mutable_resume()->set_sent_sequence(c.log.sent());
      hello->mutable_resume()->set_acknowledged_reply(c.replies.handled());
      c.replies.Acknowledged(c.replies.handled());
    }
    c.stream.Begin(*stream);
    r.receiver.Begin(std::move(owned));
    c.placement.transport = std::string(stream->transport());
  }
  stream->Start(r.stream_receiver());
  // A refusal arrives as the end of the stream, with more detail.
  (void)stream->Send(std::move(request));
  {
    MutexLock lock(&c.mu);
    while (c.end.wanted() && !r.receiver.connected() && !c.stream.broken &&
           c.recovery.unsuitable.ok() && !deadline.passed()) {
      WaitUntil(&c.connection_changed, &c.mu, deadline);
    }
    if (!c.end.wanted()) return absl::CancelledError("given up");
    DJINN_RETURN_IF_ERROR(c.recovery.unsuitable);
    if (c.stream.broken) return c.stream.break_cause;
    if (!r.receiver.connected()) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    }
  }
  if (!r.sender.encoder.begun()) BeginEncoding(r, /*next_sequence=*/1);
  return absl::OkStatus();
}

namespace {

// Returns whether nothing listens where the worker was.
bool IsRefused(const absl::Status& status) {
  return absl::StrContains(status.message(), "Connection refused") ||
         absl::StrContains(status.message(), "No such file or directory");
}

// Opens streams until the worker answers on one, or gives it up after
// `timeout`.
void Reach(State& r, absl::Duration timeout) {
  ConnectionState& c = r.connection;
  Clock* const clock = r.context->options.clock;
  const Deadline end(timeout, clock);
  Backoff pauses(r.context->options.random);
  absl::Status why;
  int refusals = 0;
  for (;;) {
    if (!DropStream(r)) return;
    absl::Status status =
        TryOpen(r, std::max(end.left() / kAttemptShare, kMinAttempt));
    MutexLock lock(&c.mu);
    if (!c.end.wanted() || c.recovery.due || status.ok()) return;
    why = status;
    if (!MayPass(status)) break;
    refusals = IsRefused(status) ? refusals + 1 : 0;
    // A process that is gone does not come back as the same incarnation.
    if (refusals == kMostRefusals && c.welcomed && c.lineage != nullptr) break;
    const Deadline pause(std::min(pauses.Next(), end.left()), clock);
    while (c.end.wanted() && !c.recovery.due && !pause.passed()) {
      WaitUntil(&c.connection_changed, &c.mu, pause);
    }
    if (!c.end.wanted() || c.recovery.due) return;
    if (!end.passed()) continue;
    why = absl::Status(status.code(),
                       absl::StrCat(status.message(), " (tried again for ",
                                    absl::FormatDuration(timeout), ")"));
    break;
  }
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    lost = LoseWorker(r, why);
    if (lost.ok()) return;
    c.unreached = true;
  }
  Fail(r, std::move(lost));
}

// Returns an error if the worker cannot take over what was sent to a lost one.
absl::Status MayTakeOver(const State& r, const v1::WorkerHello& hello)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const ConnectionState& c = r.connection;
  if (hello.limits().inline_bytes() < c.limits.inline_bytes() ||
      hello.limits().max_outstanding_bytes() <
          c.limits.max_outstanding_bytes()) {
    return MakeError(
        absl::StatusCode::kUnavailable, "LIMITS_TOO_LOW",
        absl::StrCat("worker ", hello.worker_id(), " takes smaller messages"));
  }
  if (hello.generator_bytes() != c.facts.generator_bytes) {
    return MakeError(absl::StatusCode::kUnavailable, "OTHER_GENERATORS",
                     absl::StrCat("worker ", hello.worker_id(),
                                  " draws other random numbers"));
  }
  return absl::OkStatus();
}

absl::Status ResumeFrom(State& r, const v1::WorkerHello& hello)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu) {
  ConnectionState& c = r.connection;
  if (!c.log.Rewind(hello.received_sequence())) {
    return Violation(
        absl::StrCat("it received up to ", hello.received_sequence(), " of ",
                     c.log.sent(), ", and executed ", c.log.completed()));
  }
  // The worker asks again for the graphs that it still needs.
  c.needed.clear();
  r.answers.uploads.Resume(hello);
  if (std::exchange(c.migration.gone_over, false)) return absl::OkStatus();
  ++r.answers.statistics.resumes;
  return absl::OkStatus();
}

}  // namespace

void Open(State& r) {
  ConnectionState& c = r.connection;
  bool leased;
  bool again;
  bool recovers;
  absl::Status dropped;
  {
    MutexLock lock(&c.mu);
    leased = !c.lease.lease_id().empty();
    again = c.welcomed;
    if (!c.recovery.due && c.stream.broken && IsDropped(c.stream.break_cause)) {
      const Deadline deadline(kReasonTimeout, r.context->options.clock);
      while (c.end.wanted() && !c.recovery.due && !deadline.passed()) {
        WaitUntil(&c.connection_changed, &c.mu, deadline);
      }
      dropped = WorkerLost(r, c.stream.break_cause);
    }
    recovers = c.recovery.due;
  }
  if (recovers) return Recover(r);
  // Does nothing if OnLeaseEnded() has reported a more precise failure.
  if (!dropped.ok()) return Fail(r, std::move(dropped));
  if (!leased) {
    absl::Status status = RequestLease(r);
    if (!status.ok()) {
      Fail(r, std::move(status));
      return;
    }
    bool failed;
    {
      MutexLock lock(&c.mu);
      failed = !c.end.failure.ok();
    }
    // The device failed while it had no lease to return.
    if (failed) return GiveLeaseBack(r, /*unreachable=*/false);
  }
  Reach(r, again ? r.context->options.resume_timeout
                 : r.context->options.connect_timeout);
}

bool DropStream(State& r, const absl::Status& why) {
  ConnectionState& c = r.connection;
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&c.mu);
    r.receiver.SetConnected(false);
    stream = r.receiver.stream();
  }
  if (stream == nullptr) return true;
  stream->Close(why);
  const Deadline deadline(kEndTimeout, r.context->options.clock);
  {
    MutexLock lock(&c.mu);
    while (!c.stream.closed && !deadline.passed()) {
      WaitUntil(&c.connection_changed, &c.mu, deadline);
    }
  }
  std::unique_ptr<ClientStream> old;
  if (r.receiver.End(deadline, &old)) return true;
  absl::Status stuck;
  {
    MutexLock lock(&c.mu);
    stuck = WorkerLost(
        r, absl::InternalError("a transfer did not leave its stream"));
  }
  Fail(r, std::move(stuck));
  return false;
}

void BeginEncoding(State& r, uint64_t next_sequence) {
  ConnectionState& c = r.connection;
  v1::SessionLimits limits;
  {
    MutexLock lock(&c.mu);
    limits = c.limits;
  }
  r.sender.encoder.BeginAt(limits, next_sequence);
}

absl::Status ApplyHello(State& r, const v1::ControlResponse& response) {
  ConnectionState& c = r.connection;
  const v1::WorkerHello& hello = response.hello();
  if (c.recovery.due) {
    c.recovery.unsuitable = CheckHello(hello, c.lease);
    c.recovery.unsuitable.Update(MayTakeOver(r, hello));
    if (!c.recovery.unsuitable.ok()) {
      c.connection_changed.SignalAll();
      return absl::OkStatus();
    }
  }
  DJINN_RETURN_IF_ERROR(CheckHello(hello, c.lease));
  c.limits = hello.limits();
  r.uploader.SetMemoryBytes(c.limits.memory_bytes());
  c.facts = {hello.worker_id(), hello.numerics(), hello.speed(),
             hello.generator_bytes()};
  if (c.welcomed && !c.recovery.due) {
    DJINN_RETURN_IF_ERROR(ResumeFrom(r, hello));
    // The broken stream may have lost the last window.
    c.log.GrowWindow(response.window());
  } else {
    c.log.SetWindow(response.window());
    r.answers.eager.Begin(hello);
    r.uploader.SetInlineBytes(c.limits.inline_bytes());
  }
  r.queue.SetRoom(c.log);
  r.answers.eager.Hear(response);
  c.welcomed = true;
  r.receiver.SetConnected(true);
  c.connection_changed.SignalAll();
  c.window_changed.SignalAll();
  r.answers.OnConnected();
  return absl::OkStatus();
}

void OnClosed(State& r, absl::Status status) {
  ConnectionState& c = r.connection;
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    c.stream.closed = true;
    r.receiver.SetConnected(false);
    c.connection_changed.SignalAll();
    c.progress_changed.SignalAll();
    // The worker's last message has arrived.
    if (c.end.cancelled || c.migration.going_over) return;
    if (c.recovery.due) {
      if (!c.stream.broken) c.stream.break_cause = status;
      c.stream.broken = true;
    } else if (c.end.failure.ok() && !c.end.stopped &&
               (MayPass(status) || (c.welcomed && IsDropped(status)))) {
      if (!c.stream.broken) c.stream.break_cause = status;
      c.stream.broken = true;
    } else {
      lost = c.end.stopped ? WorkerLost(r, status) : LoseWorker(r, status);
    }
  }
  if (!lost.ok()) FailInCallback(r, std::move(lost));
  r.sender.wakeup.Set();
}

bool HasLease(const State& r) {
  const ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  return !c.lease.lease_id().empty();
}

void GiveLeaseBack(State& r, bool unreachable) {
  ConnectionState& c = r.connection;
  std::string lease_id;
  {
    MutexLock lock(&c.mu);
    if (c.lease.lease_id().empty() || std::exchange(c.lease_given_back, true)) {
      return;
    }
    lease_id = c.lease.lease_id();
  }
  r.context->link->ReturnLease(lease_id, unreachable);
}

}  // namespace djinn::replica
