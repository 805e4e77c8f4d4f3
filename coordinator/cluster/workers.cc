#include "coordinator/cluster/workers.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "coordinator/cluster/adoption.h"
#include "coordinator/cluster/departure.h"
#include "coordinator/cluster/jobs.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/leases/restored.h"
#include "coordinator/cluster/placement/demand_meter.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/placement/phases.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/cluster/usage.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator::workers {
namespace {

// Most ids of one kind in a message, as DesiredState.drop_lease_ids in
// worker_registry.proto says.
constexpr size_t kMaxDropped = 4096;
// Most leases in one message: about half a MiB.
constexpr int kMaxListedLeases = 1024;

// Returns Unavailable (STREAM_REPLACED), at which the worker opens a new
// stream.
absl::Status DialAgain(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, "STREAM_REPLACED", why);
}

// Grants the offered leases that the worker has acknowledged by its applied
// revision. For a lease that a virtual device migrates to, asks the client to
// migrate.
void Acknowledge(ClusterState& state, uint64_t applied, Worker* worker,
                 Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  while (!worker->link.unacknowledged.empty() &&
         worker->link.unacknowledged.front().first <= applied) {
    Lease* const lease =
        state.leases.Find(worker->link.unacknowledged.front().second);
    worker->link.unacknowledged.pop_front();
    if (lease == nullptr || lease->state != Lease::State::kOffered) continue;
    if (lease->migrating()) {
      migration::AskClient(state, lease, wakes);
    } else {
      leases::Grant(state, lease, wakes);
    }
  }
}

// Has the requests with an offered lease at the worker wait for another one,
// because no client knows of these leases.
void EndOffered(ClusterState& state, const Worker& worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (Lease* lease : state.leases.OfWorker(worker.id)) {
    if (lease->state != Lease::State::kOffered || lease->migrating()) continue;
    leases::End(state, lease, "WORKER_LOST", wakes);
  }
}

// Applies what a report says of leases and dropped sessions, and updates what
// is learned from reports.
void Absorb(ClusterState& state, const v1::WorkerState& report, Worker* worker,
            Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const uint64_t applied = report.applied_revision();
  state.silent.erase(worker->id);
  Acknowledge(state, applied, worker, wakes);
  std::set<std::string> passed;
  for (const v1::HeldSession& held : report.sessions()) {
    adoption::Adopt(state, held.lease(), worker, &passed, wakes);
  }
  // Only after all leases are adopted is it known which of these sessions have
  // another lease at the worker.
  for (const std::string& session_id : passed) {
    notifications::LeaveWorker(state, session_id, worker->id, wakes);
  }
  usage::Absorb(state, report, worker, wakes);
  // The next message no longer lists the question that the worker has answered.
  if (state.inquiries.Take(worker->id, report, wakes)) {
    notifications::Touch(worker, wakes);
  }
  const size_t forgotten = worker->ends.drops.RemoveApplied(
      applied, [&](const std::string& session_id) {
        return !worker->leases.of_session.contains(session_id);
      });
  for (const std::string& tenant : worker->leases.arrived) {
    state.unreached.Reached(worker->id, tenant);
  }
  const bool improved = fleet::Absorb(state, *worker);
  demand::Absorb(state, worker);
  phases::NoteUntold(state, worker, wakes);
  jobs::Record(state, *worker);
  if (improved || forgotten > 0 || state.queue.untried) {
    placement::RetryInTime(state, wakes);
  }
}

// Has the new stream's messages list all of the worker's leases and peers, and
// the messages to other workers list this worker if they know it by another
// incarnation or address.
void ListEverything(ClusterState& state, Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (Lease* lease : state.leases.OfWorker(worker->id)) {
    notifications::List(lease, worker, wakes);
    notifications::ListPeers(state, *lease, wakes);
  }
  for (const auto& [id, other] : state.workers.all()) {
    if (!other->link.told_peers.contains(worker->id) ||
        other->KnowsPeer(*worker)) {
      continue;
    }
    other->link.new_peers.insert(worker->id);
    notifications::Touch(other.get(), wakes);
  }
}

// Has the next messages list the worker's leases that are due to be signed
// again. Checks all of its leases, and so does it once per heartbeat interval.
void ListDue(ClusterState& state, absl::Duration now, Worker* worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (now < worker->link.next_signing_check) return;
  worker->link.next_signing_check = now + state.config.heartbeat_interval;
  const absl::Time wall = state.clock->Now();
  for (const Lease* lease : state.leases.OfWorker(worker->id)) {
    if (lease->next_signing <= wall) worker->link.unlisted.insert(lease->id);
  }
}

void AddLeases(ClusterState& state, Worker* worker, v1::DesiredState* desired)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Time wall = state.clock->Now();
  while (!worker->link.unlisted.empty() &&
         desired->leases_size() < kMaxListedLeases) {
    Lease* const lease = state.leases.Find(*worker->link.unlisted.begin());
    worker->link.unlisted.erase(worker->link.unlisted.begin());
    if (lease == nullptr) continue;
    if (lease->next_signing <= wall) leases::SignRevision(state, lease);
    *desired->add_leases() = lease->signed_revision;
    if (lease->state == Lease::State::kOffered) {
      worker->link.unacknowledged.emplace_back(worker->link.revision,
                                               lease->id);
    }
  }
}

void AddPeers(ClusterState& state, Worker* worker, v1::DesiredState* desired)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (const std::string& id : std::exchange(worker->link.new_peers, {})) {
    const Worker* const other = state.workers.Find(id);
    if (other == nullptr) continue;
    worker->link.told_peers[id] = {other->incarnation, other->facts.address};
    v1::Peer* const peer = desired->add_peers();
    peer->set_worker_id(id);
    peer->set_incarnation(other->incarnation);
    peer->set_address(other->facts.address);
  }
}

void AddEnds(ClusterState& state, Worker* worker, v1::DesiredState* desired)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (auto& [lease_id, settling] : worker->ends.settling) {
    if (settling.revision > 0 || settling.save > state.saving.kept) continue;
    settling.revision = worker->link.revision;
    desired->add_settled_lease_ids(lease_id);
  }
  worker->ends.drops.TellNew(
      worker->link.revision, kMaxDropped,
      [&](const std::string& id) { desired->add_drop_session_ids(id); });
  worker->ends.closing.TellNew(
      worker->link.revision, kMaxDropped,
      [&](const std::string& id) { desired->add_drop_lease_ids(id); });
}

}  // namespace

absl::StatusOr<StreamId> Join(ClusterState& state,
                              const v1::WorkerState& report,
                              const std::shared_ptr<Waker>& waker) {
  DJINN_RETURN_IF_ERROR(
      CheckProtocolVersion(report.protocol_version(), "worker"));
  Wakes wakes;
  MutexLock lock(&state.mu);
  if (state.stopping) {
    return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                     "the coordinator stops; dial again");
  }
  DJINN_RETURN_IF_ERROR(state.CheckTerm(report.known_term()));
  const uint64_t stream = ++state.last_stream;
  DJINN_ASSIGN_OR_RETURN(
      WorkerRegistry::Joined joined,
      state.workers.Join(report, stream, waker, state.clock->Monotonic()));
  wakes.Add(std::move(joined.replaced));
  wakes.Add(waker);
  Worker* const worker = joined.worker;
  log::Info(joined.restarted ? "worker restarted" : "worker joined",
            {{"worker", worker->id},
             {"address", worker->facts.address},
             {"device", worker->facts.device},
             {"incarnation", absl::Hex(worker->incarnation)},
             {"sessions", report.sessions_size()}});
  if (joined.restarted) {
    state.metrics.recoveries.Add({"worker_restarted", "done"});
    state.unreached.Forget(worker->id);
    state.metrics.worker_restarts.Observe(joined.silence);
    leases::EndAt(state, worker, "WORKER_RESTARTED", &wakes);
    // The last measurements of the worker's earlier process are lost with it.
    worker->ends.closing.Clear();
    worker->ends.settling.clear();
    credits::SettleWorker(state, worker->id);
  }
  ListEverything(state, worker, &wakes);
  Absorb(state, report, worker, &wakes);
  // The first report is complete, so a restored lease that it does not name is
  // gone.
  state.earlier.workers.erase(worker->id);
  restored::Forget(state, [&](const RestoredLease& restored) {
    return restored.worker_id == worker->id;
  });
  return StreamId{worker->id, stream};
}

absl::Status Report(ClusterState& state, const StreamId& id,
                    const v1::WorkerState& report) {
  DJINN_RETURN_IF_ERROR(WorkerRegistry::Check(report));
  Wakes wakes;
  MutexLock lock(&state.mu);
  Worker* const worker = state.FindWorker(id);
  if (worker == nullptr) return DialAgain("this stream was replaced");
  if (report.worker_id() != worker->id ||
      report.incarnation() != worker->incarnation ||
      report.applied_revision() > worker->link.revision) {
    return Violation(absl::StrCat(
        "a report of ", report.worker_id(), " with revision ",
        report.applied_revision(), " on the stream of ", worker->id,
        ", where the last one is ", worker->link.revision));
  }
  if (report.acknowledgement()) {
    // Before the leases whose grants name them.
    WorkerRegistry::ApplyEndpoints(report, worker);
    Acknowledge(state, report.applied_revision(), worker, &wakes);
    return absl::OkStatus();
  }
  state.workers.Apply(report, state.clock->Monotonic(), worker);
  Absorb(state, report, worker, &wakes);
  return absl::OkStatus();
}

void Leave(ClusterState& state, const StreamId& id) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  Worker* const worker = state.FindWorker(id);
  if (worker == nullptr) return;
  state.workers.Disconnect(worker);
  fleet::Refresh(state, *worker);
  log::Info("worker disconnected", {{"worker", worker->id}});
  state.silent.erase(worker->id);
  if (state.stopping) return;
  EndOffered(state, *worker, &wakes);
  if (departure::HasLeft(state, *worker)) {
    log::Info("worker left", {{"worker", worker->id}});
    state.unreached.Forget(worker->id);
    credits::RetireWorker(state, worker->id);
    state.workers.Remove(worker);
  }
  placement::RetryInTime(state, &wakes);
}

void LoseSilent(ClusterState& state, absl::Duration now, Wakes* wakes) {
  for (const auto& [id, worker] : state.workers.all()) {
    if (!worker->usable() ||
        now - worker->last_report <= state.config.worker_silence ||
        !state.silent.insert(id).second) {
      continue;
    }
    log::Warning("worker silent; others are preferred",
                 {{"worker", id}, {"silence", now - worker->last_report}});
    EndOffered(state, *worker, wakes);
  }
  for (Worker* worker : state.workers.Overdue(now)) {
    state.metrics.recoveries.Add({"worker_lost", "lost"});
    log::Warning("worker lost", {{"worker", worker->id},
                                 {"silence", now - worker->last_report}});
    demand::NoteServesOn(state, now, worker);
    for (const Lease* lease : state.leases.OfWorker(worker->id)) {
      // If the worker comes back, it must not continue sessions that have ended
      // here.
      worker->ends.drops.Add(lease->session_id);
    }
    leases::EndAt(state, worker, "WORKER_LOST", wakes);
    wakes->Add(worker->link.waker);
    state.silent.erase(worker->id);
    state.workers.MarkLost(worker);
    fleet::Refresh(state, *worker);
  }
  for (const std::string& worker_id : state.workers.Forget(now)) {
    credits::RetireWorker(state, worker_id);
  }
}

void SendHeartbeats(ClusterState& state, absl::Duration now, Wakes* wakes) {
  for (const auto& [id, worker] : state.workers.all()) {
    if (now - worker->link.last_sent >= state.config.heartbeat_interval) {
      wakes->Add(worker->link.waker);
    }
  }
}

absl::StatusOr<std::optional<v1::DesiredState>> NextDesiredState(
    ClusterState& state, const StreamId& id) {
  MutexLock lock(&state.mu);
  if (state.stopping) return DialAgain("the coordinator stops; dial again");
  Worker* const worker = state.FindWorker(id);
  if (worker == nullptr) return DialAgain("this stream was replaced");
  const absl::Duration now = state.clock->Monotonic();
  if (!worker->link.dirty &&
      now - worker->link.last_sent < state.config.heartbeat_interval) {
    return std::nullopt;
  }
  worker->link.dirty = false;
  worker->link.last_sent = now;
  v1::DesiredState desired;
  desired.set_revision(++worker->link.revision);
  desired.set_term(state.term);
  state.keys.List(&desired);
  ListDue(state, now, worker);
  AddLeases(state, worker, &desired);
  AddPeers(state, worker, &desired);
  AddEnds(state, worker, &desired);
  for (std::string& tenant :
       state.tenants->NamesThat(&Tenant::share_contents)) {
    desired.add_sharing_tenants(std::move(tenant));
  }
  for (std::string& tenant :
       state.tenants->NamesThat(&Tenant::batch_with_others)) {
    desired.add_batching_tenants(std::move(tenant));
  }
  phases::List(state, worker, &desired);
  state.inquiries.List(worker->id, &desired);
  // The rest of the lists follows in the next message, at once.
  worker->link.dirty |= !worker->link.unlisted.empty() ||
                        worker->ends.drops.HasUntold() ||
                        worker->ends.closing.HasUntold();
  return desired;
}

}  // namespace djinn::coordinator::workers
