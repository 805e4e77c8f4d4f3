// Issues of leases, and what leases use.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/error.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  const int64_t nanoseconds = absl::ToUnixNanos(time);
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(nanoseconds / 1'000'000'000);
  timestamp.set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
  return timestamp;
}

}  // namespace

void Cluster::Issue(Lease* lease) {
  const absl::Time now = clock_->Now();
  // Workers' clocks may differ from ours by as much as a lease lives.
  const absl::Duration life =
      config_.lease_valid_for + config_.lease_grace_period;
  v1::LeaseClaims claims;
  claims.set_lease_id(lease->id);
  claims.set_tenant(lease->tenant);
  claims.set_session_id(lease->session_id);
  claims.set_session_epoch(lease->epoch);
  claims.set_virtual_device(lease->device.virtual_device);
  claims.set_member(lease->device.member);
  claims.set_worker_id(lease->worker_id);
  claims.set_worker_incarnation(lease->incarnation);
  claims.set_issue(++lease->issue_number);
  *claims.mutable_issue_time() = ToTimestamp(now);
  *claims.mutable_expire_time() = ToTimestamp(now + 2 * life);
  *claims.mutable_valid_for() = ToProtoDuration(config_.lease_valid_for);
  *claims.mutable_grace() = ToProtoDuration(config_.lease_grace_period);
  *claims.mutable_limits() = lease->limits;
  *claims.mutable_tenant_limits() = lease->tenant_limits;
  claims.set_migrates_from(lease->migrates_from);
  if (const auto tenant = tenants_->Find(lease->tenant)) {
    ledger_.Describe(lease->id, tenant->credits, &claims);
    claims.set_weight(tenant->weight);
    *claims.mutable_urgency() =
        Allowed(*tenant, sessions_.Find(lease->session_id)->urgency);
  }
  lease->issue = keys_.current().Sign(claims);
  lease->reissue_time = now + life / 2;
}

void Cluster::OpenAccount(const Lease& lease) {
  ledger_.Open(lease.id, lease.tenant, lease.worker_id);
  if (const auto tenant = tenants_->Find(lease.tenant)) {
    TopUp(lease.id, *tenant);
  }
}

void Cluster::CloseAccount(const Lease& lease) {
  ledger_.Close(lease.id);
  Worker* const worker = workers_.Find(lease.worker_id);
  if (lease.issue_number == 0 || worker == nullptr) {
    // The worker never heard of it.
    ledger_.Settle(lease.id);
  } else {
    worker->closing.insert(lease.id);
  }
}

void Cluster::RemoveLease(const std::string& lease_id) {
  Lease* const lease = leases_.Find(lease_id);
  if (lease == nullptr) return;
  CloseAccount(*lease);
  if (Lease* const to = leases_.FindMigration(*lease)) {
    // Of the two of its virtual device the other one counts now.
    std::swap(to->quota, lease->quota);
  }
  quotas_.Give(lease->tenant, lease->quota);
  const Worker* const worker = workers_.Find(lease->worker_id);
  leases_.Remove(lease_id);
  if (worker != nullptr) RefreshFleet(*worker);
  untried_ = true;
}

void Cluster::Bill(const std::string& lease_id, const Use& used) {
  const CreditLedger::Account* const account = ledger_.Find(lease_id);
  if (account == nullptr) return;
  const absl::Duration before = account->billed.device_time;
  ledger_.Bill(lease_id, used);
  line_.Charge(account->tenant,
               absl::ToDoubleSeconds(account->billed.device_time - before),
               clock_->Monotonic());
}

absl::StatusOr<v1::LeaseClaims> Cluster::ReportedClaims(
    const v1::SignedLease& lease) const {
  // Without keys of an earlier process there is only the worker's word, which
  // the join token vouches for.
  if (first_process_ && !keys_.Knows(lease.key_id())) {
    return UncheckedClaims(lease);
  }
  return keys_.Verify(lease);
}

void Cluster::BillHeld(const std::string& lease_id, const Worker::Held& held,
                       Worker* worker, Wakes* wakes) {
  Bill(lease_id, Use::From(held.lease_use));
  Lease* const lease = leases_.Find(lease_id);
  if (lease == nullptr) return;
  lease->out_of_credit = held.out_of_credit;
  const std::shared_ptr<const Tenant> tenant = tenants_->Find(lease->tenant);
  if (tenant != nullptr && TopUp(lease_id, *tenant)) {
    lease->reissue_time = absl::InfinitePast();
    Touch(worker, wakes);
  }
}

void Cluster::EndReported(const v1::EndedLease& ended, Worker* worker,
                          Wakes* wakes) {
  const absl::StatusOr<v1::LeaseClaims> claims = ReportedClaims(ended.lease());
  if (!claims.ok() || claims->worker_id() != worker->id ||
      claims->worker_incarnation() != worker->incarnation) {
    log::Warning("the use of a lease is not believed",
                 {{"worker", worker->id}, {"status", claims.status()}});
    return;
  }
  const std::string& lease_id = claims->lease_id();
  if (Lease* const lease = leases_.Find(lease_id);
      lease != nullptr && lease->worker_id == worker->id &&
      lease->state == Lease::State::kGranted) {
    // The worker gave it up while we were away for too long.
    EndLease(lease, "LEASE_EXPIRED", wakes);
  }
  // An account stays until its worker reports the lease no more. So one that an
  // earlier process did not keep is of a lease that came after its last save;
  // unless this process gave up waiting for it.
  const bool waits = restored_until_ != absl::InfiniteDuration();
  if ((first_process_ || waits) && ledger_.Find(lease_id) == nullptr) {
    ledger_.Open(lease_id, claims->tenant(), worker->id);
  }
  Bill(lease_id, Use::From(ended.use()));
  if (ended.measuring()) {
    worker->closing.insert(lease_id);
    return;
  }
  ledger_.Close(lease_id);
  worker->closing.erase(lease_id);
  worker->settling.try_emplace(lease_id, saves_ + 1);
}

void Cluster::AbsorbUse(const v1::WorkerState& report, Worker* worker,
                        Wakes* wakes) {
  for (const auto& [lease_id, held] : worker->held) {
    BillHeld(lease_id, held, worker, wakes);
  }
  absl::flat_hash_set<std::string> reported, measuring;
  for (const v1::EndedLease& ended : report.ended_leases()) {
    const std::string lease_id = UncheckedClaims(ended.lease()).lease_id();
    reported.insert(lease_id);
    if (ended.measuring()) measuring.insert(lease_id);
    EndReported(ended, worker, wakes);
  }
  std::erase_if(worker->settling,
                [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                  if (reported.contains(entry.first)) return false;
                  ledger_.Settle(entry.first);
                  return true;
                });
  if (report.applied_revision() < worker->revision) return;
  // It has carried out all we said, and knows nothing of these.
  std::erase_if(
      worker->closing,
      [&](const std::string& lease_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        if (worker->held.contains(lease_id) || measuring.contains(lease_id)) {
          return false;
        }
        ledger_.Settle(lease_id);
        return true;
      });
}

}  // namespace djinn::coordinator
