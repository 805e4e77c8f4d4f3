#include "coordinator/cluster_workers.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "common/status_macros.h"
#include "coordinator/cluster_adoption.h"
#include "coordinator/cluster_credits.h"
#include "coordinator/cluster_demand_meter.h"
#include "coordinator/cluster_fleet.h"
#include "coordinator/cluster_jobs.h"
#include "coordinator/cluster_leases.h"
#include "coordinator/cluster_migration.h"
#include "coordinator/cluster_notices.h"
#include "coordinator/cluster_persistence.h"
#include "coordinator/cluster_phases.h"
#include "coordinator/cluster_placement.h"
#include "coordinator/cluster_usage.h"
#include "coordinator/lease_table.h"
#include "coordinator/violation.h"
#include "coordinator/worker_registry.h"

namespace djinn::coordinator::workers {
namespace {

// As DesiredState.drop_lease_ids in worker_registry.proto says.
constexpr int kMaxDroppedLeases = 4096;

absl::Status DialAgain(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, "STREAM_REPLACED", why);
}

// What a report means for leases and drops.
void Absorb(ClusterState& state, const v1::WorkerState& report, Worker* worker,
            Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const uint64_t applied = report.applied_revision();
  for (Lease* lease : state.leases.OfWorker(worker->id)) {
    if (lease->state == Lease::State::kOffered && lease->listed_revision > 0 &&
        lease->listed_revision <= applied) {
      if (lease->migrating()) {
        migration::AskClient(state, lease, wakes);
      } else {
        leases::Grant(state, lease, wakes);
      }
    }
  }
  std::set<std::string> passed;
  for (const v1::HeldSession& held : report.sessions()) {
    adoption::Adopt(state, held.lease(), worker, &passed, wakes);
  }
  // Only now is it known which of them have another lease there.
  for (const std::string& session_id : passed) {
    notices::LeaveWorker(state, session_id, worker->id, wakes);
  }
  usage::Absorb(state, report, worker, wakes);
  // Nobody asks that any more.
  if (state.inquiries.Take(worker->id, report, wakes)) {
    notices::Touch(worker, wakes);
  }
  const size_t forgotten = std::erase_if(worker->drops, [&](const auto& drop) {
    const auto& [session_id, revision] = drop;
    return revision > 0 && revision <= applied &&
           std::none_of(worker->held.begin(), worker->held.end(),
                        [&](const auto& held) {
                          return held.second.session_id == session_id;
                        });
  });
  const bool improved = fleet::Absorb(state, *worker);
  demand::Absorb(state, worker);
  phases::NoteUntold(state, worker, wakes);
  jobs::Record(state, *worker);
  if (improved || forgotten > 0 || state.untried) {
    placement::RetryInTime(state, wakes);
  }
}

// The workers that sessions of this one use besides it.
void ListPeers(ClusterState& state, const Worker& worker,
               v1::DesiredState* desired)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  absl::flat_hash_set<std::string> listed = {worker.id};
  absl::flat_hash_set<std::string> sessions;
  for (const Lease* own : state.leases.OfWorker(worker.id)) {
    if (!sessions.insert(own->session_id).second) continue;
    for (const Lease* lease : state.leases.OfSession(own->session_id)) {
      if (!listed.insert(lease->worker_id).second) continue;
      const Worker* const other = state.workers.Find(lease->worker_id);
      v1::Peer* const peer = desired->add_peers();
      peer->set_worker_id(other->id);
      peer->set_incarnation(other->incarnation);
      peer->set_address(other->address);
    }
  }
}

}  // namespace

absl::Status CheckJoin(const v1::WorkerState& report) {
  return CheckProtocolVersion(report.protocol_version(), "worker");
}

absl::StatusOr<StreamId> Join(ClusterState& state,
                              const v1::WorkerState& report,
                              const std::shared_ptr<Waker>& waker,
                              Wakes* wakes) {
  if (state.stopping) {
    return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                     "the coordinator stops; dial again");
  }
  const uint64_t stream = ++state.last_stream;
  DJINN_ASSIGN_OR_RETURN(
      WorkerRegistry::Joined joined,
      state.workers.Join(report, stream, waker, state.clock->Monotonic()));
  wakes->Add(std::move(joined.replaced));
  wakes->Add(waker);
  Worker* const worker = joined.worker;
  log::Info(joined.restarted ? "worker restarted" : "worker joined",
            {{"worker", worker->id},
             {"address", worker->address},
             {"device", worker->device},
             {"incarnation", absl::Hex(worker->incarnation)},
             {"sessions", report.sessions_size()}});
  if (joined.restarted) {
    state.metrics.recoveries.Add({"worker_restarted"});
    state.metrics.worker_restarts.Observe(joined.silence);
    leases::EndAt(state, worker, "WORKER_RESTARTED", wakes);
    // What its former process measured last is lost with it.
    worker->closing.clear();
    worker->settling.clear();
    credits::SettleWorker(state, worker->id);
  }
  for (Lease* lease : state.leases.OfWorker(worker->id)) {
    lease->listed_revision = 0;
  }
  Absorb(state, report, worker, wakes);
  // The first report tells of all that there is.
  state.awaited.erase(worker->id);
  persistence::ForgetRestored(state, [&](const RestoredLease& restored) {
    return restored.worker_id == worker->id;
  });
  return StreamId{worker->id, stream};
}

absl::Status Report(ClusterState& state, const StreamId& id,
                    const v1::WorkerState& report, Wakes* wakes) {
  Worker* const worker = state.FindWorker(id);
  if (worker == nullptr) return DialAgain("this stream was replaced");
  if (report.worker_id() != worker->id ||
      report.incarnation() != worker->incarnation ||
      report.applied_revision() > worker->revision) {
    return Violation(
        absl::StrCat("a report of ", report.worker_id(), " with revision ",
                     report.applied_revision(), " on the stream of ",
                     worker->id, ", where the last one is ", worker->revision));
  }
  state.workers.Apply(report, state.clock->Monotonic(), worker);
  Absorb(state, report, worker, wakes);
  return absl::OkStatus();
}

void Leave(ClusterState& state, const StreamId& id) {
  Worker* const worker = state.FindWorker(id);
  if (worker == nullptr) return;
  state.workers.Disconnect(worker);
  fleet::Refresh(state, *worker);
  log::Info("worker disconnected", {{"worker", worker->id}});
}

void LoseSilent(ClusterState& state, absl::Duration now, Wakes* wakes) {
  for (Worker* worker : state.workers.Overdue(now)) {
    state.metrics.recoveries.Add({"worker_lost"});
    log::Warning("worker lost", {{"worker", worker->id},
                                 {"silence", now - worker->last_report}});
    demand::NoteServesOn(state, now, worker);
    for (const Lease* lease : state.leases.OfWorker(worker->id)) {
      // Should it come back, it must not go on with what has ended.
      worker->drops.emplace(lease->session_id, 0);
    }
    leases::EndAt(state, worker, "WORKER_LOST", wakes);
    wakes->Add(worker->waker);
    state.workers.MarkLost(worker);
    fleet::Refresh(state, *worker);
  }
  for (const std::string& worker_id : state.workers.Forget(now)) {
    credits::RetireWorker(state, worker_id);
  }
}

void SendHeartbeats(ClusterState& state, absl::Duration now, Wakes* wakes) {
  for (const auto& [id, worker] : state.workers.all()) {
    if (now - worker->last_sent >= state.config.heartbeat_interval) {
      wakes->Add(worker->waker);
    }
  }
}

absl::StatusOr<std::optional<v1::DesiredState>> NextDesiredState(
    ClusterState& state, const StreamId& id) {
  if (state.stopping) return DialAgain("the coordinator stops; dial again");
  Worker* const worker = state.FindWorker(id);
  if (worker == nullptr) return DialAgain("this stream was replaced");
  const absl::Duration now = state.clock->Monotonic();
  if (!worker->dirty &&
      now - worker->last_sent < state.config.heartbeat_interval) {
    return std::nullopt;
  }
  worker->dirty = false;
  worker->last_sent = now;
  v1::DesiredState desired;
  desired.set_revision(++worker->revision);
  state.keys.List(&desired);
  const absl::Time wall = state.clock->Now();
  for (Lease* lease : state.leases.OfWorker(worker->id)) {
    if (lease->listed_revision == 0) lease->listed_revision = worker->revision;
    if (lease->reissue_time <= wall) leases::Issue(state, lease);
    *desired.add_leases() = lease->issue;
  }
  for (const auto& [lease_id, save] : worker->settling) {
    if (save <= state.kept_saves) desired.add_settled_lease_ids(lease_id);
  }
  ListPeers(state, *worker, &desired);
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
  for (auto& [session_id, revision] : worker->drops) {
    if (revision == 0) revision = worker->revision;
    desired.add_drop_session_ids(session_id);
  }
  for (auto& [lease_id, revision] : worker->closing) {
    if (desired.drop_lease_ids_size() == kMaxDroppedLeases) break;
    if (revision == 0) revision = worker->revision;
    desired.add_drop_lease_ids(lease_id);
  }
  return desired;
}

}  // namespace djinn::coordinator::workers
