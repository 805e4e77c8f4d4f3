// What sessions and workers share: grants and ends of leases, and time. Of the
// rest of the cluster
//   cluster_sessions.cc has the streams of sessions,
//   cluster_workers.cc those of workers, and what a report means,
//   cluster_leases.cc requests and returns of leases, issues and use,
//   cluster_placement.cc the choice of workers, the waiting line and cordons,
//   cluster_migration.cc ways to other workers,
//   cluster_stages.cc the cuts of virtual devices that span workers,
//   cluster_phases.cc what workers are told of their graphs,
//   cluster_queue.cc tenants' queues, and stops of them,
//   cluster_quota.cc quotas and rates,
//   cluster_reclaim.cc who gives back what is borrowed,
//   cluster_tenants.cc tenants that come, change and go,
//   cluster_demand.cc what the scaler asks,
//   cluster_jobs.cc what ran, as it is recorded,
//   cluster_state.cc what outlives the process,
//   cluster_admin.cc and cluster_explain.cc the views for operators,
//   cluster_runs.cc those of single runs, which workers are asked for,
//   cluster_metrics.cc what is scraped.
#include "coordinator/cluster.h"

#include "common/error.h"
#include "common/log/log.h"
#include "common/retry_after.h"

namespace djinn::coordinator {

Cluster::Cluster(const Config* config, Tenants* tenants, Clock* clock,
                 RandomSource* random)
    : config_(*config),
      tenants_(tenants),
      clock_(clock),
      random_(random),
      begin_(clock->Monotonic()),
      workers_(config->worker_timeout),
      keys_(random, config->lease_key_lifetime,
            2 * (config->lease_valid_for + config->lease_grace_period)),
      losses_(config->reclaim_loss_limit),
      reservation_(config->line_patience),
      draws_(random->NonZero64()),
      jobs_(config->recorded_jobs) {
  MutexLock lock(&mu_);
  keys_.Update(clock_->Now(), saves_ + 1);
  cohorts_ = config->cohorts;
  ConfigureQuotas();
}

void Cluster::Touch(Worker* worker, Wakes* wakes) {
  worker->dirty = true;
  wakes->Add(worker->waker);
}

v1::LeaseGranted Cluster::GrantOf(const Lease& lease) {
  v1::LeaseGranted granted;
  granted.set_virtual_device(lease.device.virtual_device);
  granted.set_member(lease.device.member);
  granted.set_placement_reason(lease.placement_reason);
  v1::Lease* const out = granted.mutable_lease();
  out->set_lease_id(lease.id);
  out->set_token(lease.issue.SerializeAsString());
  out->set_session_epoch(lease.epoch);
  out->set_worker_id(lease.worker_id);
  out->set_worker_incarnation(lease.incarnation);
  const Worker& worker = *workers_.Find(lease.worker_id);
  out->set_worker_address(worker.address);
  out->set_shared_memory_socket(worker.shared_memory_socket);
  return granted;
}

void Cluster::Grant(Lease* lease, Wakes* wakes) {
  lease->state = Lease::State::kGranted;
  // An adopted one was not listed yet.
  if (lease->issue_number == 0) Issue(lease);
  Session* const session = sessions_.Find(lease->session_id);
  session->pending.erase(lease->device);
  session->returning.erase(lease->device);
  v1::SessionResponse response;
  *response.mutable_granted() = GrantOf(*lease);
  Send(std::move(response), session, wakes);
  if (!session->MayLog(clock_->Monotonic())) return;
  log::Info("lease granted", {{"lease", lease->id},
                              {"session", log::ShortId(session->id)},
                              {"worker", lease->worker_id}});
}

void Cluster::Drop(const std::string& session_id, Worker* worker,
                   Wakes* wakes) {
  worker->drops.emplace(session_id, 0);
  Touch(worker, wakes);
}

void Cluster::EndLease(Lease* lease, absl::string_view reason, Wakes* wakes,
                       absl::string_view for_tenant) {
  if (lease->migrating()) {
    return DropMigration(
        lease,
        MakeError(absl::StatusCode::kUnavailable, reason,
                  "the lease at worker " + lease->worker_id + " has ended"),
        wakes);
  }
  Session* const session = sessions_.Find(lease->session_id);
  if (lease->state == Lease::State::kOffered) {
    // The client never saw it: look for another worker.
    PendingLease& pending = session->pending.at(lease->device);
    pending.lease_id.clear();
    pending.obstacle = MakeError(
        absl::StatusCode::kUnavailable, reason,
        "the lease offered at worker " + lease->worker_id + " has ended");
    JoinLine(lease->device, session);
  } else {
    v1::SessionResponse response;
    response.mutable_ended()->set_lease_id(lease->id);
    response.mutable_ended()->set_reason(std::string(reason));
    Send(std::move(response), session, wakes);
    session->lost_leases[lease->device] = {
        lease->id,           lease->worker_id,
        std::string(reason), std::string(for_tenant),
        LostWith(*lease),    clock_->Monotonic()};
  }
  log::Warning("lease ended", {{"lease", lease->id},
                               {"session", log::ShortId(session->id)},
                               {"worker", lease->worker_id},
                               {"reason", reason}});
  RemoveLease(lease->id);
}

void Cluster::EndLeasesOf(Worker* worker, absl::string_view reason,
                          Wakes* wakes) {
  for (Lease* lease : leases_.OfWorker(worker->id)) {
    EndLease(lease, reason, wakes);
  }
}

size_t Cluster::PlaceInLine(scheduler::WaitingLine::Ticket ticket,
                            absl::Duration now, LinePlaces* places) {
  if (!places->has_value()) *places = line_.PlacesNow(now, PrecedenceInLine());
  return (*places)->at(ticket);
}

void Cluster::ExpirePending(Session* session, absl::Duration now,
                            LinePlaces* places, Wakes* wakes) {
  for (auto it = session->pending.begin(); it != session->pending.end();) {
    auto& [device, pending] = *it;
    if (pending.deadline > now) {
      ++it;
      continue;
    }
    absl::Status why = pending.obstacle;
    if (const Lease* lease = leases_.Find(pending.lease_id)) {
      why = MakeError(absl::StatusCode::kUnavailable, "WORKER_UNRESPONSIVE",
                      "worker " + lease->worker_id +
                          " did not acknowledge the lease in time",
                      {{"worker", lease->worker_id}});
      const std::string worker_id = lease->worker_id;
      RemoveLease(lease->id);
      // It may have acted on it already.
      LeaveWorker(session->id, worker_id, wakes);
    }
    if (pending.ticket != 0) {
      const auto wait =
          line_.WaitAt(PlaceInLine(pending.ticket, now, places), now);
      if (wait.has_value()) why = WithRetryAfter(std::move(why), *wait);
    }
    LeaveLine(&pending);
    Refuse(why, device, session, wakes);
    it = session->pending.erase(it);
  }
}

void Cluster::Tick() {
  Wakes wakes;
  MutexLock lock(&mu_);
  const absl::Duration now = clock_->Monotonic();
  for (Worker* worker : workers_.Overdue(now)) {
    metrics_.recoveries.Add({"worker_lost"});
    log::Warning("worker lost", {{"worker", worker->id},
                                 {"silence", now - worker->last_report}});
    NoteServesOn(now, worker);
    for (const Lease* lease : leases_.OfWorker(worker->id)) {
      // Should it come back, it must not go on with what has ended.
      worker->drops.emplace(lease->session_id, 0);
    }
    EndLeasesOf(worker, "WORKER_LOST", &wakes);
    wakes.Add(worker->waker);
    workers_.MarkLost(worker);
    RefreshFleet(*worker);
  }
  for (const std::string& worker_id : workers_.Forget(now)) {
    // Should it come back, what was billed is known.
    ledger_.RetireWorker(
        worker_id, now,
        [this](const std::string& tenant)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return RatesOf(tenant); });
  }
  ledger_.ForgetRetired(now);
  keys_.Update(clock_->Now(), saves_ + 1);
  if (now >= restored_until_) SettleForgotten();
  AdvanceRates(&wakes);
  // Workers may have told of leases from before a restart.
  DrainStopped(&wakes);
  RetryUnplaced(&wakes);
  ExpireMigrations(now, &wakes);
  Rebalance(now, &wakes);
  AdvanceDrains(now, &wakes);
  for (Session* session : sessions_.TimedOut(now)) {
    EndSession(session, "timed out", &wakes);
  }
  inquiries_.Expire(now, &wakes);
  LinePlaces places;
  for (const auto& [id, session] : sessions_.all()) {
    ExpirePending(session.get(), now, &places, &wakes);
    TellUrgency(session.get(), &wakes);
  }
  for (const auto& [id, worker] : workers_.all()) {
    if (now - worker->last_sent >= config_.heartbeat_interval) {
      wakes.Add(worker->waker);
    }
  }
}

void Cluster::Stop() {
  Wakes wakes;
  MutexLock lock(&mu_);
  stopping_ = true;
  inquiries_.End(MakeError(absl::StatusCode::kUnavailable,
                           "COORDINATOR_STOPPING", "the coordinator stops"),
                 &wakes);
  for (const auto& [id, session] : sessions_.all()) wakes.Add(session->waker);
  for (const auto& [id, worker] : workers_.all()) wakes.Add(worker->waker);
}

}  // namespace djinn::coordinator
