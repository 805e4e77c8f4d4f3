// Connects to the worker: requests the lease, opens one stream after another,
// and resumes on each new one.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/device/replica/room.h"
#include "client_lib/session/model/remedies.h"
#include "client_lib/session/stream/backoff.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::replica {
namespace {

// An attempt to connect takes this share of the time left, and at least
// kMinAttempt.
constexpr int kAttemptShare = 3;
constexpr absl::Duration kMinAttempt = absl::Seconds(1);
// Longest first attempt to connect to a worker that has nothing of the session.
// Then another worker may be better.
constexpr absl::Duration kFirstAttempt = absl::Seconds(3);
// Time that a stream may take to end.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
// Time by which the coordinator may report the reason for a session's end later
// than the worker.
constexpr absl::Duration kReasonTimeout = absl::Seconds(2);
// Number of connections, one right after the other, whose refusal means that a
// worker is lost that the device can recover from.
constexpr int kMostRefusals = 2;

// Returns the numerics that a worker must have to take over from a lost one, or
// an empty string if any will do. A device that leaves its local worker goes on
// with the values that it has, as if it migrated.
std::string NeededNumerics(const ConnectionState& c)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
  if (!c.recovery.due || ErrorReason(c.recovery.cause) == kFallbackEnded) {
    return "";
  }
  return c.facts.numerics;
}

}  // namespace

absl::Duration AttemptTime(const Deadline& end, bool patient) {
  const absl::Duration share =
      std::max(end.left() / kAttemptShare, kMinAttempt);
  return patient ? share : std::min(share, kFirstAttempt);
}

absl::Status EndOfLease(const ConnectionState& c) {
  if (!c.ended_leases.has_value()) return absl::OkStatus();
  const auto end = c.ended_leases->find(c.lease.lease_id());
  return end == c.ended_leases->end() ? absl::OkStatus()
                                      : EndedFor(end->second);
}

absl::Status RequestLease(State& r, absl::Duration timeout) {
  ConnectionState& c = r.connection;
  v1::LeaseRequest request;
  request.set_virtual_device(static_cast<uint32_t>(r.index));
  const auto& policies = r.context->options.device_placement_policies;
  if (const auto found = policies.find(r.index); found != policies.end()) {
    request.set_placement_policy(found->second);
  }
  request.set_member(static_cast<uint32_t>(r.role.member));
  r.queue.Visit([&](Work& work) {
    if (work.trace.valid() && !request.has_trace()) {
      *request.mutable_trace() = ToProto(work.trace);
    }
    const auto* install = std::get_if<InstallWork>(&work.action);
    if (install == nullptr || install->wait == nullptr ||
        request.contents_size() == kMaxContentHints) {
      return;
    }
    v1::ContentHint* const hint = request.add_contents();
    hint->set_hash_high(install->hash.high);
    hint->set_hash_low(install->hash.low);
    hint->set_size_bytes(install->source.bytes.size());
  });
  uint64_t needed = r.role.needed_bytes;
  {
    MutexLock lock(&c.mu);
    c.ended_leases.emplace();
    if (c.recovery.due && c.recovery.trace.valid()) {
      *request.mutable_trace() = ToProto(c.recovery.trace);
    }
    request.set_numerics(NeededNumerics(c));
    request.set_recovers(c.recovery.due);
    request.set_needed_bytes(needed);
    if (c.recovery.due) {
      needed = HeldBytes(r);
      AskForHeld(r, needed, &request);
    }
  }
  absl::StatusOr<v1::LeaseGranted> granted =
      r.context->link->RequestLease(request, timeout);
  if (ErrorReason(granted.status()) == "TOO_LARGE" &&
      request.contents_size() > 0) {
    // If no worker can hold the contents, their upload fails with limit and
    // use. That need not cost the session its device.
    request.clear_contents();
    request.set_needed_bytes(needed);
    granted = r.context->link->RequestLease(request, timeout);
  }
  if (granted.ok()) {
    log::Debug("device has a lease", {{"device", r.index},
                                      {"worker", granted->lease().worker_id()},
                                      {"reason", granted->placement_reason()}});
  }
  MutexLock lock(&c.mu);
  DJINN_RETURN_IF_ERROR(granted.status());
  c.lease = granted->lease();
  c.lease_given_back = false;
  c.placement.worker_id = c.lease.worker_id();
  c.placement.reason = granted->placement_reason();
  return absl::OkStatus();
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
    DJINN_RETURN_IF_ERROR(EndOfLease(c));
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
           EndOfLease(c).ok() && c.recovery.unsuitable.ok() &&
           !deadline.passed()) {
      WaitUntil(&c.connection_changed, &c.mu, deadline);
    }
    if (!c.end.wanted()) return absl::CancelledError("given up");
    DJINN_RETURN_IF_ERROR(EndOfLease(c));
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

// Waits before the next attempt. Returns false when the device is not wanted
// any more, or recovers.
bool Pause(State& r, const Deadline& end, Backoff* pauses)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  ConnectionState& c = r.connection;
  const Deadline pause(std::min(pauses->Next(), end.left()),
                       r.context->options.clock);
  while (c.end.wanted() && !c.recovery.due && !pause.passed()) {
    WaitUntil(&c.connection_changed, &c.mu, pause);
  }
  return c.end.wanted() && !c.recovery.due;
}

// Opens streams until the worker answers on one, or the device is not wanted
// any more, or recovers. Returns the error of the last attempt if another one
// cannot succeed or `end` has passed; for a `fresh` worker, which has nothing
// of the session yet, also if it was not reached. AttemptTime() says what
// `patient` means.
absl::Status Reach(State& r, const Deadline& end, bool fresh,
                   bool patient = true) {
  ConnectionState& c = r.connection;
  Backoff pauses(r.context->options.random);
  int refusals = 0;
  for (;;) {
    if (!DropStream(r)) return absl::OkStatus();
    absl::Status status = TryOpen(r, AttemptTime(end, patient));
    MutexLock lock(&c.mu);
    if (!c.end.wanted() || c.recovery.due || status.ok()) {
      return absl::OkStatus();
    }
    if (AfterWorkerError(status) != Remedy::kTryAgain ||
        (fresh && ErrorReason(status).empty())) {
      return status;
    }
    refusals = IsRefusedDial(status) ? refusals + 1 : 0;
    // A process that is gone does not come back as the same incarnation.
    if (refusals > 0 && !fresh && c.lineage != nullptr) {
      if (refusals == kMostRefusals) return status;
      continue;
    }
    if (!Pause(r, end, &pauses)) return absl::OkStatus();
    if (end.passed()) return status;
  }
}

// Adds how long it was tried, unless the error is a worker's refusal.
absl::Status AfterTrying(const absl::Status& status, absl::Duration time) {
  if (!ErrorReason(status).empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), " (tried again for ",
                                   absl::FormatDuration(time), ")"));
}

// Opens streams to the worker that has the session until it answers on one.
// After resume_timeout, the device recovers or fails.
void ReachAgain(State& r) {
  ConnectionState& c = r.connection;
  const absl::Duration timeout = r.context->options.resume_timeout;
  const Deadline end(timeout, r.context->options.clock);
  absl::Status status = Reach(r, end, /*fresh=*/false);
  if (status.ok()) return;
  if (end.passed()) status = AfterTrying(status, timeout);
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    lost = LoseWorker(r, status);
    if (lost.ok()) return;
    c.unreached = true;
  }
  Fail(r, std::move(lost));
}

// A worker that the device left before it had anything there.
struct LeftWorker {
  // An empty lease when there is none.
  v1::Lease lease;
  absl::Status cause;
  // The worker, or another one at its address, refused the session.
  bool refused = false;

  bool any() const { return !lease.lease_id().empty(); }
  // Returns whether the lease is of the same process of the worker.
  bool IsOf(const v1::Lease& other) const {
    return any() && lease.worker_id() == other.worker_id() &&
           lease.worker_incarnation() == other.worker_incarnation();
  }
  absl::Status Loss() const { return LossOf(lease, /*welcomed=*/false, cause); }
  absl::Status LossAfter(absl::Duration time) const {
    return LossOf(lease, /*welcomed=*/false, AfterTrying(cause, time));
  }
};

// Leaves the worker of the lease for `cause`, and gives the lease back, so that
// the coordinator can choose again. Returns false if there is no more to do:
// the worker answered after all, or the device failed, recovers or is not
// wanted.
bool Leave(State& r, const absl::Status& cause, LeftWorker* left) {
  ConnectionState& c = r.connection;
  if (!DropStream(r)) return false;
  absl::Status failure;
  {
    MutexLock lock(&c.mu);
    if (!c.end.wanted() || c.recovery.due) return false;
    const absl::Status ended = EndOfLease(c);
    if (c.welcomed) {
      // The sender resumes, unless the lease has ended.
      if (ended.ok()) return false;
      failure = LoseLease(r, c.ended_leases->at(c.lease.lease_id()));
      if (failure.ok()) return false;
    }
    *left = {c.lease, cause,
             AfterWorkerError(cause) != Remedy::kTryAgain && ended.ok()};
  }
  if (failure.ok() && r.role.member > 0) failure = left->Loss();
  if (!failure.ok()) {
    Fail(r, std::move(failure));
    return false;
  }
  log::Warning("a worker was not reached; another lease is requested",
               {{"device", r.index}, {"error", left->Loss()}});
  GiveLeaseBack(r, /*unreachable=*/true);
  MutexLock lock(&c.mu);
  c.lease.Clear();
  return true;
}

// Requests one lease after the other until a worker answers, for at most
// connect_timeout after the first lease. Fails the device if none does.
void Bind(State& r) {
  ConnectionState& c = r.connection;
  const absl::Duration timeout = r.context->options.connect_timeout;
  Deadline end(timeout, r.context->options.clock);
  Backoff pauses(r.context->options.random);
  LeftWorker left;
  for (;;) {
    absl::Status refused = RequestLease(r, std::max(end.left(), kMinAttempt));
    if (!refused.ok()) {
      const bool may_pass = absl::IsUnavailable(refused) ||
                            absl::IsResourceExhausted(refused) ||
                            absl::IsDeadlineExceeded(refused);
      if (!left.any() || !may_pass) return Fail(r, std::move(refused));
      // The worker that was left may return.
      if (end.passed()) return Fail(r, left.LossAfter(timeout));
      MutexLock lock(&c.mu);
      if (!Pause(r, end, &pauses)) return;
      continue;
    }
    bool failed, same;
    {
      MutexLock lock(&c.mu);
      failed = !c.end.failure.ok();
      same = left.IsOf(c.lease);
    }
    // The device failed while it had no lease to return.
    if (failed) return GiveLeaseBack(r, /*unreachable=*/false);
    if (!left.any()) end = Deadline(timeout, r.context->options.clock);
    if (same) {
      // The coordinator has no other worker.
      if (left.refused) return Fail(r, left.Loss());
      if (end.passed()) return Fail(r, left.LossAfter(timeout));
      MutexLock lock(&c.mu);
      if (!Pause(r, end, &pauses)) return;
    }
    // A worker that is only slow gets more time if there is no other one.
    const absl::Status status =
        Reach(r, end, /*fresh=*/true, /*patient=*/left.any());
    if (status.ok() || !Leave(r, status, &left)) return;
  }
}

// Returns an error if the worker cannot take over what was sent to a lost one.
absl::Status MayTakeOver(State& r, const v1::WorkerHello& hello)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const ConnectionState& c = r.connection;
  if (hello.limits().inline_bytes() < c.limits.inline_bytes() ||
      hello.limits().max_outstanding_bytes() <
          c.limits.max_outstanding_bytes()) {
    return MakeError(
        absl::StatusCode::kUnavailable, "LIMITS_TOO_LOW",
        absl::StrCat("worker ", hello.worker_id(), " takes smaller messages"));
  }
  const uint64_t held = HeldBytes(r);
  if (hello.limits().memory_bytes() < held) {
    return MakeError(
        absl::StatusCode::kUnavailable, "LIMITS_TOO_LOW",
        absl::StrCat("worker ", hello.worker_id(), " lets the session have ",
                     hello.limits().memory_bytes(), " bytes of the ", held,
                     " that it holds"),
        {{"worker", hello.worker_id()},
         {"limit", absl::StrCat(hello.limits().memory_bytes())},
         {"used", absl::StrCat(held)}});
  }
  if (hello.generator_bytes() != c.facts.generator_bytes) {
    return MakeError(absl::StatusCode::kUnavailable, "OTHER_GENERATORS",
                     absl::StrCat("worker ", hello.worker_id(),
                                  " draws other random numbers"));
  }
  const std::string needed = NeededNumerics(c);
  if (!needed.empty() && !hello.numerics().empty() &&
      hello.numerics() != needed) {
    return MakeError(
        absl::StatusCode::kUnavailable, "OTHER_NUMERICS",
        absl::StrCat("worker ", hello.worker_id(), " computes other bits (",
                     hello.numerics(), ") than worker ", c.facts.worker_id,
                     " did (", needed,
                     "): its processor, threads or libraries differ"),
        {{"worker", hello.worker_id()}});
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
  bool again;
  bool recovers;
  absl::Status dropped;
  {
    MutexLock lock(&c.mu);
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
  if (again) return ReachAgain(r);
  Bind(r);
  MutexLock lock(&c.mu);
  c.ended_leases.reset();
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
             hello.generator_bytes(), hello.executor_per_tenant()};
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
    // Before the worker's first answer, and during a recovery, the device may
    // choose another one.
    if (c.recovery.due || (c.end.failure.ok() && !c.end.stopped &&
                           (AfterWorkerError(status) == Remedy::kTryAgain ||
                            !c.welcomed || IsDropped(status)))) {
      if (!c.stream.broken) {
        c.stream.break_cause =
            status.ok() ? absl::UnavailableError("it ended the stream")
                        : status;
      }
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
