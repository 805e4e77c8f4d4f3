// Ends a device that fails, by itself or with its virtual device.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/checkpoint_steps.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/model/remedies.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn::replica {

absl::Status WorkerLost(const State& r, const absl::Status& cause) {
  return LossOf(r.connection.lease, r.connection.welcomed, cause);
}

absl::Status EndedFor(absl::string_view reason) {
  return absl::AbortedError(
      absl::StrCat("the coordinator ended the lease: ", reason));
}

absl::Status LoseLease(State& r, absl::string_view reason) {
  ConnectionState& c = r.connection;
  const absl::Status ended = EndedFor(reason);
  const absl::Status cause = MakeError(ended.code(), reason, ended.message());
  // A device that keeps no messages, or not all of their bytes, stays where it
  // is.
  if (reason == kFallbackEnded &&
      (c.lineage == nullptr || c.lineage->hash_only_nodes() > 0)) {
    log::Warning("a device stays on the client's machine",
                 {{"device", r.index},
                  {"because", "the client keeps not all that it would need"}});
    return absl::OkStatus();
  }
  // Other reasons, such as a reclaimed quota, would hold for the next lease,
  // too.
  if (c.lineage == nullptr || AfterWorkerError(cause) == Remedy::kGiveUp) {
    return WorkerLost(r, ended);
  }
  absl::Status lost = LoseWorker(r, cause);
  // A device that stays keeps its lease.
  if (lost.ok() && c.recovery.due) c.lease_given_back = true;
  return lost;
}

void Fail(State& r, absl::Status failure, bool by_itself) {
  r.receiver.Enter();
  FailInCallback(r, std::move(failure), by_itself);
  r.receiver.Leave();
}

void FailInCallback(State& r, absl::Status failure, bool by_itself) {
  ConnectionState& c = r.connection;
  ClientStream* stream = nullptr;
  bool counts = by_itself;
  bool failed = false;
  bool unreachable = false;
  if (by_itself) {
    {
      MutexLock lock(&c.mu);
      if (c.end.stopped || !c.end.failing.ok()) return;
    }
    // A thread that sees this replica fail must see the others fail.
    r.role.on_failure(failure);
  }
  {
    MutexLock lock(&c.mu);
    if (c.end.stopped) return;
    // The loss of an additional replica that never answered is no failure of
    // the program's.
    if (r.role.member > 0 && !c.welcomed) counts = false;
    failed = c.end.failing.ok();
    if (failed) {
      c.end.failing = failure;
      unreachable = by_itself && (c.unreached || !c.welcomed);
    } else if (ErrorMetadataValue(c.end.failing, "worker") ==
               c.lease.worker_id()) {
      // This worker failed in two ways at once, and the other failure was
      // reported. If another replica failed at the same time, its failure may
      // have arrived here first. Each replica then reports its own.
      counts = false;
    }
  }
  if (failed) {
    // A thread that knows of the failure may request another lease for the
    // virtual device.
    GiveLeaseBack(r, unreachable);
    // The recorder fails before any thread wakes with the failure.
    r.recorder.Fail(failure);
    const bool records = r.recorder.HasOpenSegments();
    MutexLock lock(&c.mu);
    if (c.end.failure.ok()) {
      c.end.failure = failure;
      c.end.lost_work = !r.queue.empty() || r.queue.held() || !c.log.empty() ||
                        records ||
                        (c.recovery.due && c.lineage->has_unexecuted());
      WakeAll(c);
      r.answers.Fail(failure);
      stream = r.receiver.stream();
    }
  }
  if (counts) r.context->root_errors.AddReported(r.index, failure);
  // A replica added since the first call does not know of the failure.
  if (by_itself) r.role.on_failure(failure);
  if (stream != nullptr) {
    stream->Close(absl::CancelledError("the client gave the worker up"));
  }
  // Returns a lease that was granted meanwhile.
  if (failed) GiveLeaseBack(r, unreachable);
  SendReport(r);
  // The device's own thread runs the callbacks that became due.
  r.sender.wakeup.Set();
}

void OnLeaseEnded(State& r, const std::string& lease_id,
                  const std::string& reason) {
  ConnectionState& c = r.connection;
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    if (c.migration.current != nullptr && c.lease.lease_id() != lease_id &&
        c.migration.current->request.to().lease().lease_id() == lease_id) {
      c.migration.current->given_up = MakeError(
          absl::StatusCode::kAborted, "LEASE_ENDED",
          absl::StrCat("the coordinator ended the lease of worker ",
                       c.migration.current->request.to().lease().worker_id(),
                       ": ", reason));
      c.connection_changed.SignalAll();
      r.sender.wakeup.Set();
      return;
    }
    if (c.ended_leases.has_value()) c.ended_leases->emplace(lease_id, reason);
    if (c.lease.lease_id().empty() || c.lease.lease_id() != lease_id) return;
    if (c.migration.going_over) return;  // another lease takes its place
    // TryOpen() may wait for the worker's answer.
    c.connection_changed.SignalAll();
    // Nothing is lost yet, and the device requests another lease.
    if (!c.welcomed && c.ended_leases.has_value()) return;
    if (reason != kFallbackEnded || !LeaveWithCheckpoint(r)) {
      lost = LoseLease(r, reason);
    }
  }
  if (!lost.ok()) Fail(r, lost);
  r.sender.wakeup.Set();
}

void WakeAll(ConnectionState& c) {
  c.window_changed.SignalAll();
  c.progress_changed.SignalAll();
  c.connection_changed.SignalAll();
}

void Notify(const ReadTable::Callbacks& callbacks) {
  for (const auto& callback : callbacks) callback();
}

}  // namespace djinn::replica
