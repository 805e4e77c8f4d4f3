#include "coordinator/cluster/leases/leases.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/config/tenants.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::leases {

Lease Make(ClusterState& state, const Worker& worker, MemberId device,
           const Tenant* tenant, Session* session) {
  if (device.member > 0 ||
      !session->devices.bound.insert(device.virtual_device).second) {
    ++session->devices.epoch;
  }
  Lease lease;
  lease.id = absl::BytesToHexString(state.random->Bytes(8));
  lease.session_id = session->id;
  lease.tenant = session->tenant;
  lease.epoch = session->devices.epoch;
  lease.device = device;
  lease.worker_id = worker.id;
  lease.incarnation = worker.incarnation;
  if (tenant != nullptr) {
    lease.limits = tenant->limits;
    lease.tenant_limits = tenant->totals;
  }
  lease.created = state.clock->Monotonic();
  return lease;
}

Lease* Add(ClusterState& state, Lease lease) {
  // Only one lease of a migrating virtual device counts against the quota.
  const auto tenant = state.tenants->Find(lease.tenant);
  if (tenant != nullptr && !lease.migrating()) {
    lease.quota = LeaseQuota(*tenant);
  }
  state.quotas.tree.Take(lease.tenant, lease.quota);
  return state.leases.Add(std::move(lease));
}

const Lease* Offer(ClusterState& state, Lease lease, Worker* worker,
                   Wakes* wakes) {
  Lease* const added = Add(state, std::move(lease));
  credits::Open(state, *added);
  fleet::Refresh(state, *worker);
  notifications::List(added, worker, wakes);
  notifications::ListPeers(state, *added, wakes);
  return added;
}

void SignRevision(ClusterState& state, Lease* lease) {
  const absl::Time now = state.clock->Now();
  // Workers' clocks may differ from ours by as long as a lease is valid.
  const absl::Duration life =
      state.config.lease_valid_for + state.config.lease_grace_period;
  v1::LeaseClaims claims;
  claims.set_lease_id(lease->id);
  claims.set_tenant(lease->tenant);
  claims.set_session_id(lease->session_id);
  claims.set_session_epoch(lease->epoch);
  claims.set_virtual_device(lease->device.virtual_device);
  claims.set_member(lease->device.member);
  claims.set_worker_id(lease->worker_id);
  claims.set_worker_incarnation(lease->incarnation);
  claims.set_revision(++lease->revision);
  *claims.mutable_issue_time() = ToProtoTimestamp(now);
  *claims.mutable_expire_time() = ToProtoTimestamp(now + 2 * life);
  *claims.mutable_valid_for() = ToProtoDuration(state.config.lease_valid_for);
  *claims.mutable_grace() = ToProtoDuration(state.config.lease_grace_period);
  *claims.mutable_limits() = lease->limits;
  *claims.mutable_tenant_limits() = lease->tenant_limits;
  claims.set_migrates_from(lease->migrates_from);
  if (const auto tenant = state.tenants->Find(lease->tenant)) {
    state.billing.ledger.Describe(lease->id, tenant->credits, &claims);
    claims.set_weight(tenant->weight);
    *claims.mutable_urgency() = AllowedUrgency(
        *tenant, state.sessions.Find(lease->session_id)->urgency);
  }
  lease->signed_revision = state.keys.current().Sign(claims);
  lease->next_signing = now + life / 2;
}

absl::StatusOr<v1::LeaseClaims> ReportedClaims(const ClusterState& state,
                                               const v1::SignedLease& lease) {
  // No key of an earlier process is known, so the signature cannot be checked.
  // The worker's word stands, which the join token vouches for.
  if (state.earlier.none && !state.keys.Knows(lease.key_id())) {
    return UncheckedClaims(lease);
  }
  return state.keys.Verify(lease);
}

void Grant(ClusterState& state, Lease* lease, Wakes* wakes) {
  lease->state = Lease::State::kGranted;
  // A lease that was not listed to its worker yet has no signed revision.
  if (lease->revision == 0) SignRevision(state, lease);
  Session* const session = state.sessions.Find(lease->session_id);
  session->devices.pending.erase(lease->device);
  session->devices.returning.erase(lease->device);
  v1::SessionResponse response;
  *response.mutable_granted() =
      GrantOf(*state.workers.Find(lease->worker_id), *lease);
  notifications::Send(std::move(response), session, wakes);
  if (!session->MayLog(state.clock->Monotonic())) return;
  log::Info("lease granted", {{"lease", lease->id},
                              {"session", log::ShortId(session->id)},
                              {"worker", lease->worker_id}});
}

v1::LeaseGranted GrantOf(const Worker& worker, const Lease& lease) {
  v1::LeaseGranted granted;
  granted.set_virtual_device(lease.device.virtual_device);
  granted.set_member(lease.device.member);
  granted.set_placement_reason(lease.placement_reason);
  v1::Lease* const out = granted.mutable_lease();
  out->set_lease_id(lease.id);
  out->set_token(lease.signed_revision.SerializeAsString());
  out->set_session_epoch(lease.epoch);
  out->set_worker_id(lease.worker_id);
  out->set_worker_incarnation(lease.incarnation);
  out->set_worker_address(worker.facts.address);
  out->set_shared_memory_socket(worker.facts.shared_memory_socket);
  if (const auto endpoint = worker.facts.endpoints.find(lease.tenant);
      endpoint != worker.facts.endpoints.end()) {
    out->set_worker_address(endpoint->second.address());
    out->set_shared_memory_socket(endpoint->second.shared_memory_socket());
  }
  return granted;
}

void Remove(ClusterState& state, const std::string& lease_id) {
  Lease* const lease = state.leases.Find(lease_id);
  if (lease == nullptr) return;
  credits::Close(state, *lease);
  if (Lease* const to = state.leases.FindMigration(*lease)) {
    // The virtual device's other lease holds the quota from now on.
    std::swap(to->quota, lease->quota);
  }
  state.quotas.tree.Give(lease->tenant, lease->quota);
  fleet::PutOff(state, lease->worker_id);
  state.leases.Remove(lease_id);
  state.queue.untried = true;
}

void Withdraw(ClusterState& state, const Lease& lease, Wakes* wakes) {
  const std::string session_id = lease.session_id;
  const std::string worker_id = lease.worker_id;
  Remove(state, lease.id);
  notifications::LeaveWorker(state, session_id, worker_id, wakes);
}

void End(ClusterState& state, Lease* lease, absl::string_view reason,
         Wakes* wakes, absl::string_view for_tenant) {
  if (lease->migrating()) {
    return DropMigration(
        state, lease,
        MakeError(absl::StatusCode::kUnavailable, reason,
                  "the lease at worker " + lease->worker_id + " has ended"),
        wakes);
  }
  Session* const session = state.sessions.Find(lease->session_id);
  if (lease->state == Lease::State::kOffered) {
    // The client never saw the lease, so its request waits for another worker.
    PendingLease& pending = session->devices.pending.at(lease->device);
    pending.lease_id.clear();
    pending.obstacle = MakeError(
        absl::StatusCode::kUnavailable, reason,
        "the lease offered at worker " + lease->worker_id + " has ended");
    line::Join(state, lease->device, session);
  } else {
    v1::SessionResponse response;
    response.mutable_ended()->set_lease_id(lease->id);
    response.mutable_ended()->set_reason(std::string(reason));
    notifications::Send(std::move(response), session, wakes);
    session->devices.lost[lease->device] = {
        lease->id,
        lease->worker_id,
        std::string(reason),
        std::string(for_tenant),
        credits::DeviceTimeOf(state, *lease),
        state.clock->Monotonic()};
  }
  log::Warning("lease ended", {{"lease", lease->id},
                               {"session", log::ShortId(session->id)},
                               {"worker", lease->worker_id},
                               {"reason", reason}});
  Remove(state, lease->id);
}

void EndAt(ClusterState& state, Worker* worker, absl::string_view reason,
           Wakes* wakes) {
  for (Lease* lease : state.leases.OfWorker(worker->id)) {
    End(state, lease, reason, wakes);
  }
}

void DropMigration(ClusterState& state, Lease* to, const absl::Status& why,
                   Wakes* wakes) {
  Session* const session = state.sessions.Find(to->session_id);
  log::Warning("migration failed", {{"session", log::ShortId(session->id)},
                                    {"device", to->device.virtual_device},
                                    {"to", to->worker_id},
                                    {"lease", to->id},
                                    {"error", why}});
  EndMigrationRecord(to->id, {}, why, session, &state.metrics);
  if (to->state == Lease::State::kGranted) {
    // The client may use it already.
    v1::SessionResponse response;
    response.mutable_ended()->set_lease_id(to->id);
    response.mutable_ended()->set_reason(ErrorReason(why));
    notifications::Send(std::move(response), session, wakes);
  }
  Withdraw(state, *to, wakes);
}

void EndMigrationRecord(const std::string& lease_id,
                        v1::MigrationOutcome outcome, absl::Status failure,
                        Session* session, ClusterMetrics* metrics) {
  for (Migration& migration : session->devices.migrations) {
    if (migration.lease_id != lease_id) continue;
    migration.state =
        failure.ok() ? v1::MigrationInfo::DONE : v1::MigrationInfo::FAILED;
    metrics->migrations.Add(
        {migration.reason, failure.ok() ? "done" : "failed"});
    if (failure.ok()) {
      metrics->migration_pauses.Observe(FromProtoDuration(outcome.paused()));
    }
    migration.outcome = std::move(outcome);
    migration.failure = std::move(failure);
    return;
  }
}

}  // namespace djinn::coordinator::leases
