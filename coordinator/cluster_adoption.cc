#include "coordinator/cluster_adoption.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "coordinator/cluster_leases.h"
#include "coordinator/cluster_limits.h"
#include "coordinator/cluster_line.h"
#include "coordinator/cluster_notices.h"
#include "coordinator/cluster_persistence.h"
#include "coordinator/credit_ledger.h"
#include "coordinator/lease_table.h"
#include "coordinator/session_table.h"
#include "coordinator/urgency.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::adoption {
namespace {

// The session has another lease for the virtual device, which came later.
bool IsOfThePast(ClusterState& state, const v1::LeaseClaims& reported,
                 const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Lease* const other = state.leases.FindDevice(
      session.id, {reported.virtual_device(), reported.member()});
  if (other == nullptr || other->id == reported.migrates_from()) return false;
  // One that was made here the client asked for when it had no other.
  return !other->adopted || other->epoch >= reported.session_epoch();
}

// An earlier process knew the lease's end.
bool HadEnded(ClusterState& state, const v1::LeaseClaims& reported,
              const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // Only the first lease of a virtual device leaves the epoch as it was. So all
  // others up to the epoch that was kept were made before, and the first one
  // was if the device was kept, too.
  return session.kept.has_value() &&
         reported.session_epoch() <= session.kept->epoch &&
         (reported.member() > 0 ||
          session.kept->devices.contains(reported.virtual_device())) &&
         !state.restored.contains(reported.lease_id());
}

// Ends those that were adopted for its virtual device and came before it.
void EndOlder(ClusterState& state, const Lease& newest, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (newest.migrating()) return;
  for (Lease* lease : state.leases.OfSession(newest.session_id)) {
    if (!lease->adopted || lease->device != newest.device ||
        lease->epoch >= newest.epoch) {
      continue;
    }
    state.metrics.recoveries.Add({"lease_superseded"});
    const std::string worker_id = lease->worker_id;
    leases::End(state, lease, "LEASE_SUPERSEDED", wakes);
    // The virtual device has lost nothing: it has the newest.
    if (Session* const session = state.sessions.Find(newest.session_id)) {
      session->lost_leases.erase(newest.device);
    }
    notices::LeaveWorker(state, newest.session_id, worker_id, wakes);
  }
}

}  // namespace

void Adopt(ClusterState& state, const v1::SignedLease& reported, Worker* worker,
           std::set<std::string>* passed, Wakes* wakes) {
  v1::LeaseClaims record = UncheckedClaims(reported);
  // What has ended here it is being told of; signatures take long to check.
  if (state.leases.Find(record.lease_id()) != nullptr ||
      worker->drops.Contains(record.session_id()) ||
      worker->closing.Contains(record.lease_id()) ||
      worker->settling.contains(record.lease_id())) {
    return;
  }
  if (const CreditLedger::Account* const account =
          state.ledger.Find(record.lease_id());
      account != nullptr && account->closed &&
      account->worker_id == worker->id) {
    // An earlier process ended it.
    worker->closing.Add(record.lease_id());
    passed->insert(record.session_id());
    return;
  }
  const absl::StatusOr<v1::LeaseClaims> claims =
      leases::ReportedClaims(state, reported);
  if (!claims.ok() || claims->worker_id() != worker->id ||
      claims->worker_incarnation() != worker->incarnation) {
    log::Warning("lease not adopted: not signed for this worker",
                 {{"lease", record.lease_id()},
                  {"worker", worker->id},
                  {"status", claims.status()}});
    return;
  }
  if (record.lease_id().empty() || !IsSessionId(record.session_id()) ||
      record.virtual_device() >= kMaxVirtualDevices ||
      record.member() >= kMaxMembers) {
    log::Warning("lease not adopted: malformed", {{"worker", worker->id}});
    return;
  }
  const MemberId device{record.virtual_device(), record.member()};
  // Whoever else of the session is there stays.
  const auto pass = [&](const Session& of)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
                          worker->closing.Add(record.lease_id());
                          passed->insert(of.id);
                        };
  Session* session = state.sessions.Find(record.session_id());
  const std::shared_ptr<const Tenant> tenant = state.tenants->Find(
      session == nullptr ? record.tenant() : session->tenant);
  if (tenant == nullptr) {
    log::Warning("session dropped: its tenant is not configured",
                 {{"session", log::ShortId(record.session_id())},
                  {"lease", record.lease_id()},
                  {"worker", worker->id},
                  {"tenant", record.tenant()}});
    notices::Drop(record.session_id(), worker, wakes);
    return;
  }
  if (session == nullptr &&
      state.sessions.Ended(tenant->name, record.session_id())) {
    // The worker was away when it ended.
    notices::Drop(record.session_id(), worker, wakes);
    return;
  }
  if (session == nullptr) {
    const size_t count = state.sessions.CountOfTenant(tenant->name);
    if (count >= tenant->max_sessions) {
      // Absence of room is no order either: it stays, and new ones wait.
      log::Warning("adopts a session beyond the tenant's limit",
                   {{"session", log::ShortId(record.session_id())},
                    {"tenant", tenant->name},
                    {"worker", worker->id},
                    {"limit", tenant->max_sessions},
                    {"used", count}});
    }
    Session added;
    added.id = record.session_id();
    added.tenant = record.tenant();
    added.began_earlier = true;
    added.state = v1::SessionInfo::ADOPTED;
    added.open_time = state.clock->Now();
    added.urgency = KnownUrgency(record.urgency());
    added.deadline = state.clock->Monotonic() + state.config.session_timeout;
    session = state.sessions.Add(std::move(added));
  } else if (session->tenant != record.tenant()) {
    log::Warning("lease not adopted: its session is another tenant's",
                 {{"lease", record.lease_id()},
                  {"worker", worker->id},
                  {"tenant", record.tenant()}});
    return;
  } else if (absl::c_linear_search(session->returned_leases,
                                   record.lease_id())) {
    return pass(*session);
  } else if (HadEnded(state, record, *session)) {
    // The worker was away when it ended, and its virtual device may have
    // another one by now.
    log::Warning("lease not adopted: it had ended",
                 {{"lease", record.lease_id()},
                  {"session", log::ShortId(session->id)},
                  {"worker", worker->id}});
    return pass(*session);
  }
  // Also where this lease is not the one: the next one is to be newer.
  session->epoch = std::max(session->epoch, record.session_epoch());
  if (IsOfThePast(state, record, *session)) {
    // The client moved on.
    return pass(*session);
  }
  if (!record.migrates_from().empty()) {
    for (Migration& migration : session->migrations) {
      if (migration.lease_id != record.lease_id()) continue;
      // The client has said so before its worker did.
      if (migration.state == v1::MigrationInfo::FAILED) {
        return pass(*session);
      }
      if (migration.state == v1::MigrationInfo::DONE) {
        record.clear_migrates_from();
        migration.virtual_device = record.virtual_device();
        migration.to_worker_id = worker->id;
        // The other one's worker was here first.
        if (const Lease* const other =
                state.leases.FindDevice(session->id, device)) {
          leases::Withdraw(state, *other, wakes);
        }
      }
    }
  }
  if (device.member == 0) session->bound_devices.insert(device.virtual_device);
  Lease lease;
  lease.id = record.lease_id();
  lease.issue_number = record.issue();
  lease.session_id = session->id;
  lease.tenant = record.tenant();
  lease.epoch = record.session_epoch();
  lease.device = device;
  lease.worker_id = worker->id;
  lease.incarnation = worker->incarnation;
  // The worker's word for them counts for nothing.
  lease.limits = tenant->limits;
  lease.tenant_limits = tenant->totals;
  lease.placement_reason = "adopted from the worker";
  if (const auto restored = persistence::TakeRestored(state, lease.id)) {
    lease.placement_reason = restored->lease.placement_reason();
  }
  lease.created = state.clock->Monotonic();
  lease.state = Lease::State::kGranted;
  lease.adopted = true;
  // The client says which of the two it uses, when it attaches again.
  lease.migrates_from = record.migrates_from();
  state.metrics.recoveries.Add({"lease_adopted"});
  if (session->MayLog(state.clock->Monotonic())) {
    log::Info("lease adopted", {{"lease", lease.id},
                                {"session", log::ShortId(session->id)},
                                {"tenant", session->tenant},
                                {"worker", worker->id}});
  }
  Lease* const adopted = leases::Add(state, std::move(lease));
  state.ledger.Open(adopted->id, adopted->tenant, worker->id);
  state.ledger.Adopt(adopted->id, record.credits());
  EndOlder(state, *adopted, wakes);
  leases::Issue(state, adopted);
  notices::List(adopted, worker, wakes);
  notices::ListPeers(state, *adopted, wakes);
  // The client may have asked for it while nobody knew of it.
  if (session->pending.contains(device) && !adopted->migrating()) {
    line::Leave(state, &session->pending.at(device));
    leases::Grant(state, adopted, wakes);
  }
}

}  // namespace djinn::coordinator::adoption
