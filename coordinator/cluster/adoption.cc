#include "coordinator/cluster/adoption.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/leases/restored.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/session_table.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::adoption {
namespace {

// Returns whether the session has a later lease for the virtual device.
bool HasLaterLease(ClusterState& state, const v1::LeaseClaims& reported,
                   const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Lease* const other = state.leases.FindDevice(
      session.id, {reported.virtual_device(), reported.member()});
  if (other == nullptr || other->id == reported.migrates_from()) return false;
  // A lease that this process made itself is the later one: the client asked
  // for that lease when it had no other.
  return !other->adopted || other->epoch >= reported.session_epoch();
}

// Returns whether an earlier process knew that the lease had ended.
bool HadEnded(ClusterState& state, const v1::LeaseClaims& reported,
              const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // The first lease of a virtual device leaves the epoch as it was; every later
  // lease raises it. So every later lease up to the saved epoch was made before
  // the save. The first lease was, too, if the device was saved.
  return session.devices.kept.has_value() &&
         reported.session_epoch() <= session.devices.kept->epoch &&
         (reported.member() > 0 ||
          session.devices.kept->devices.contains(reported.virtual_device())) &&
         !state.earlier.leases.contains(reported.lease_id());
}

// Ends the virtual device's older leases among those that were adopted.
void EndOlder(ClusterState& state, const Lease& newest, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (newest.migrating()) return;
  for (Lease* lease : state.leases.OfSession(newest.session_id)) {
    if (!lease->adopted || lease->device != newest.device ||
        lease->epoch >= newest.epoch) {
      continue;
    }
    state.metrics.recoveries.Add({"lease_superseded", "done"});
    const std::string worker_id = lease->worker_id;
    leases::End(state, lease, "LEASE_SUPERSEDED", wakes);
    // The virtual device has lost nothing, because it has the newest lease.
    if (Session* const session = state.sessions.Find(newest.session_id)) {
      session->devices.lost.erase(newest.device);
    }
    notifications::LeaveWorker(state, newest.session_id, worker_id, wakes);
  }
}

enum class Verdict {
  kIgnore,
  // The worker must end the lease; other leases of the session may stay.
  kEndLease,
  // The worker must forget the session.
  kDropSession,
  kAdopt,
};

struct Judged {
  Verdict verdict = Verdict::kIgnore;
  v1::LeaseClaims claims;
  // Null if the session is new.
  Session* session = nullptr;
  std::shared_ptr<const Tenant> tenant;
};

// Returns whether nothing is to be done for a lease, judged by its id alone,
// because checking signatures takes long.
bool IsKnown(ClusterState& state, const v1::LeaseClaims& claims,
             const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  return state.leases.Find(claims.lease_id()) != nullptr ||
         worker.ends.drops.Contains(claims.session_id()) ||
         worker.ends.closing.Contains(claims.lease_id()) ||
         worker.ends.settling.contains(claims.lease_id());
}

// Returns whether the claims are signed for this worker and well-formed. Logs
// it if they are not.
bool IsUsable(ClusterState& state, const v1::SignedLease& reported,
              const v1::LeaseClaims& claims, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::StatusOr<v1::LeaseClaims> verified =
      leases::ReportedClaims(state, reported);
  if (!verified.ok() || verified->worker_id() != worker.id ||
      verified->worker_incarnation() != worker.incarnation) {
    log::Warning("lease not adopted: not signed for this worker",
                 {{"lease", claims.lease_id()},
                  {"worker", worker.id},
                  {"status", verified.status()}});
    return false;
  }
  if (claims.lease_id().empty() || !IsSessionId(claims.session_id()) ||
      claims.virtual_device() >= kMaxVirtualDevices ||
      claims.member() >= kMaxMembers) {
    log::Warning("lease not adopted: malformed", {{"worker", worker.id}});
    return false;
  }
  return true;
}

// Returns whether the session has failed to migrate to the lease.
bool MigrationFailed(const Session& session, const v1::LeaseClaims& claims) {
  return !claims.migrates_from().empty() &&
         absl::c_any_of(session.devices.migrations,
                        [&](const Migration& migration) {
                          return migration.lease_id == claims.lease_id() &&
                                 migration.state == v1::MigrationInfo::FAILED;
                        });
}

// Returns what to do with a lease of a session that is known. Raises the
// session's epoch to that of the lease, unless the lease was returned or has
// ended.
Verdict JudgeKnown(ClusterState& state, const v1::LeaseClaims& claims,
                   const Worker& worker, Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (session->tenant != claims.tenant()) {
    log::Warning("lease not adopted: its session is another tenant's",
                 {{"lease", claims.lease_id()},
                  {"worker", worker.id},
                  {"tenant", claims.tenant()}});
    return Verdict::kIgnore;
  }
  if (absl::c_linear_search(session->devices.returned, claims.lease_id())) {
    return Verdict::kEndLease;
  }
  if (HadEnded(state, claims, *session)) {
    // The worker was away when the lease ended, and the virtual device may have
    // another lease by now.
    log::Warning("lease not adopted: it had ended",
                 {{"lease", claims.lease_id()},
                  {"session", log::ShortId(session->id)},
                  {"worker", worker.id}});
    return Verdict::kEndLease;
  }
  // Raises the epoch even if this lease is outdated: the next lease must be
  // newer.
  session->devices.epoch =
      std::max(session->devices.epoch, claims.session_epoch());
  return HasLaterLease(state, claims, *session) ||
                 MigrationFailed(*session, claims)
             ? Verdict::kEndLease
             : Verdict::kAdopt;
}

Judged Judge(ClusterState& state, const v1::SignedLease& reported,
             const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  Judged judged;
  v1::LeaseClaims& claims = judged.claims;
  claims = UncheckedClaims(reported);
  if (IsKnown(state, claims, worker)) return judged;
  const CreditLedger::Account* const account =
      state.billing.ledger.Find(claims.lease_id());
  if (account != nullptr && account->closed &&
      account->worker_id == worker.id) {
    // An earlier process ended the lease.
    judged.verdict = Verdict::kEndLease;
    return judged;
  }
  if (!IsUsable(state, reported, claims, worker)) return judged;
  judged.session = state.sessions.Find(claims.session_id());
  judged.tenant = state.tenants->Find(
      judged.session == nullptr ? claims.tenant() : judged.session->tenant);
  if (judged.tenant == nullptr) {
    log::Warning("session dropped: its tenant is not configured",
                 {{"session", log::ShortId(claims.session_id())},
                  {"lease", claims.lease_id()},
                  {"worker", worker.id},
                  {"tenant", claims.tenant()}});
    judged.verdict = Verdict::kDropSession;
  } else if (judged.session != nullptr) {
    judged.verdict = JudgeKnown(state, claims, worker, judged.session);
  } else if (state.sessions.Ended(judged.tenant->name, claims.session_id())) {
    // The worker was away when the session ended.
    judged.verdict = Verdict::kDropSession;
  } else {
    judged.verdict = Verdict::kAdopt;
  }
  return judged;
}

Session* AddSession(ClusterState& state, const v1::LeaseClaims& claims,
                    const Tenant& tenant, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const size_t count = state.sessions.CountOfTenant(tenant.name);
  if (count >= tenant.max_sessions) {
    // The session exists on its worker, so the limit must not end it. New
    // sessions are refused until others end.
    log::Warning("adopted a session beyond the tenant's limit",
                 {{"session", log::ShortId(claims.session_id())},
                  {"tenant", tenant.name},
                  {"worker", worker.id},
                  {"limit", tenant.max_sessions},
                  {"used", count}});
  }
  Session added;
  added.id = claims.session_id();
  added.tenant = claims.tenant();
  added.began_earlier = true;
  added.state = v1::SessionInfo::ADOPTED;
  added.open_time = state.clock->Now();
  added.urgency = KnownUrgency(claims.urgency());
  added.deadline = state.clock->Monotonic() + state.config.session_timeout;
  added.devices.epoch = std::max(added.devices.epoch, claims.session_epoch());
  return state.sessions.Add(std::move(added));
}

// Completes the migration to the lease if the client reported that it is done
// before the lease's worker joined: clears migrates_from in the claims, and
// withdraws the lease that the virtual device left.
void CompleteMigration(ClusterState& state, const Worker& worker,
                       Session* session, v1::LeaseClaims* claims, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (claims->migrates_from().empty()) return;
  for (Migration& migration : session->devices.migrations) {
    if (migration.lease_id != claims->lease_id() ||
        migration.state != v1::MigrationInfo::DONE) {
      continue;
    }
    claims->clear_migrates_from();
    migration.virtual_device = claims->virtual_device();
    migration.to_worker_id = worker.id;
    // The worker that the virtual device left joined first.
    if (const Lease* const other = state.leases.FindDevice(
            session->id, {claims->virtual_device(), claims->member()})) {
      leases::Withdraw(state, *other, wakes);
    }
  }
}

Lease LeaseFrom(ClusterState& state, const v1::LeaseClaims& claims,
                const Tenant& tenant, const Worker& worker)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  Lease lease;
  lease.id = claims.lease_id();
  lease.revision = claims.revision();
  lease.session_id = claims.session_id();
  lease.tenant = claims.tenant();
  lease.epoch = claims.session_epoch();
  lease.device = {claims.virtual_device(), claims.member()};
  lease.worker_id = worker.id;
  lease.incarnation = worker.incarnation;
  // The limits come from the configuration: the worker's word counts for
  // nothing.
  lease.limits = tenant.limits;
  lease.tenant_limits = tenant.totals;
  lease.placement_reason = "adopted from the worker";
  if (const auto restored = restored::Take(state, lease.id)) {
    lease.placement_reason = restored->lease.placement_reason();
  }
  lease.created = state.clock->Monotonic();
  lease.state = Lease::State::kGranted;
  lease.adopted = true;
  // If the virtual device migrates, the client says which of its two leases it
  // uses when it attaches again.
  lease.migrates_from = claims.migrates_from();
  return lease;
}

void Apply(ClusterState& state, Judged judged, Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  v1::LeaseClaims& claims = judged.claims;
  Session* const session =
      judged.session != nullptr
          ? judged.session
          : AddSession(state, claims, *judged.tenant, *worker);
  CompleteMigration(state, *worker, session, &claims, wakes);
  const MemberId device{claims.virtual_device(), claims.member()};
  if (device.member == 0) session->devices.bound.insert(device.virtual_device);
  state.metrics.recoveries.Add({"lease_adopted", "done"});
  if (session->MayLog(state.clock->Monotonic())) {
    log::Info("lease adopted", {{"lease", claims.lease_id()},
                                {"session", log::ShortId(session->id)},
                                {"tenant", session->tenant},
                                {"worker", worker->id}});
  }
  Lease* const adopted =
      leases::Add(state, LeaseFrom(state, claims, *judged.tenant, *worker));
  state.billing.ledger.Open(adopted->id, adopted->tenant, worker->id);
  state.billing.ledger.Adopt(adopted->id, claims.credits());
  EndOlder(state, *adopted, wakes);
  leases::SignRevision(state, adopted);
  notifications::List(adopted, worker, wakes);
  notifications::ListPeers(state, *adopted, wakes);
  // The client may have requested a lease before this one was known.
  if (session->devices.pending.contains(device) && !adopted->migrating()) {
    line::Leave(state, &session->devices.pending.at(device));
    leases::Grant(state, adopted, wakes);
  }
}

}  // namespace

void Adopt(ClusterState& state, const v1::SignedLease& reported, Worker* worker,
           std::set<std::string>* passed, Wakes* wakes) {
  Judged judged = Judge(state, reported, *worker);
  switch (judged.verdict) {
    case Verdict::kIgnore:
      return;
    case Verdict::kEndLease:
      worker->ends.closing.Add(judged.claims.lease_id());
      passed->insert(judged.claims.session_id());
      return;
    case Verdict::kDropSession:
      notifications::Drop(judged.claims.session_id(), worker, wakes);
      return;
    case Verdict::kAdopt:
      return Apply(state, std::move(judged), worker, wakes);
  }
}

}  // namespace djinn::coordinator::adoption
