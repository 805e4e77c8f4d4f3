#include "gpu_worker/leases/lease_keeper.h"

#include <atomic>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "djinn/v1/usage.pb.h"

namespace djinn::worker {

bool LeaseKeeper::EndedLease::measuring() const {
  if (meter.use_count() > 1) return true;
  // Makes the use that destroyed sessions added visible.
  std::atomic_thread_fence(std::memory_order_acquire);
  return false;
}

void LeaseKeeper::Learn(const v1::DesiredState& desired) {
  for (const v1::LeaseKey& key : desired.lease_keys()) {
    const absl::Status learned = verifier_.Learn(key);
    if (!learned.ok()) {
      log::Error("lease key refused",
                 {{"key", key.key_id()}, {"status", learned}});
    }
  }
  for (const std::string& key_id : desired.retired_lease_key_ids()) {
    verifier_.Retire(key_id);
  }
  MutexLock lock(&mu_);
  // A new stream lists all leases again.
  if (desired.revision() == 1) leases_.BeginListing();
  leases_.RenewListed(Now());
}

absl::StatusOr<v1::LeaseClaims> LeaseKeeper::ClaimsOf(
    const v1::SignedLease& signed_lease) const {
  v1::LeaseClaims claims = UncheckedClaims(signed_lease);
  {
    MutexLock lock(&mu_);
    // Clients resume with a revision whose key may be retired by now.
    if (leases_.Has(signed_lease, claims)) return claims;
  }
  return verifier_.Verify(signed_lease);
}

absl::StatusOr<bool> LeaseKeeper::Renew(const v1::SignedLease& signed_lease,
                                        const v1::LeaseClaims& claims) {
  MutexLock lock(&mu_);
  const bool fresh = leases_.Find(claims.lease_id()) == nullptr;
  DJINN_RETURN_IF_ERROR(leases_.Renew(signed_lease, claims, Now()));
  if (tenant_.empty()) tenant_ = claims.tenant();
  return fresh;
}

absl::StatusOr<Lease> LeaseKeeper::Present(const v1::SignedLease& signed_lease,
                                           const v1::LeaseClaims& claims,
                                           const std::string& session_id,
                                           uint64_t epoch) {
  MutexLock lock(&mu_);
  if (one_tenant_ && claims.tenant() != tenant_) {
    return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_UNKNOWN",
                     "the lease is for another address of the worker");
  }
  DJINN_ASSIGN_OR_RETURN(
      const Lease* const lease,
      leases_.Present(signed_lease, claims, session_id, epoch, Now()));
  Lease presented = *lease;
  presented.in_force = leases_.InForceUntil(*lease);
  presented.ends = leases_.EndOf(*lease);
  return presented;
}

std::vector<std::string> LeaseKeeper::EndExpired() {
  MutexLock lock(&mu_);
  return End(leases_.TakeExpired(Now()));
}

std::vector<std::string> LeaseKeeper::EndSession(
    const std::string& session_id) {
  MutexLock lock(&mu_);
  return End(leases_.TakeSession(session_id));
}

std::vector<std::string> LeaseKeeper::EndLease(const std::string& lease_id) {
  MutexLock lock(&mu_);
  return End(leases_.TakeLease(lease_id));
}

std::vector<std::string> LeaseKeeper::End(std::vector<Lease> leases) {
  std::vector<std::string> ids;
  for (Lease& lease : leases) {
    ids.push_back(lease.claims.lease_id());
    ended_.push_back(
        {ids.back(), std::move(lease.newest), std::move(lease.meter)});
    if (ended_.size() <= max_ended_) continue;
    ++unbilled_;
    log::Warning("what a lease used is not billed: too many wait to be settled",
                 {{"lease", ended_.front().lease_id}, {"unbilled", unbilled_}});
    ended_.pop_front();
  }
  return ids;
}

void LeaseKeeper::Settle(
    const absl::flat_hash_set<absl::string_view>& lease_ids) {
  if (lease_ids.empty()) return;
  MutexLock lock(&mu_);
  std::erase_if(ended_, [&](const EndedLease& lease) {
    return lease_ids.contains(lease.lease_id);
  });
}

std::optional<Lease> LeaseKeeper::Find(const std::string& lease_id) const {
  MutexLock lock(&mu_);
  const Lease* const lease = leases_.Find(lease_id);
  if (lease == nullptr) return std::nullopt;
  return *lease;
}

std::optional<Lease> LeaseKeeper::FindSession(
    const std::string& session_id) const {
  MutexLock lock(&mu_);
  for (const auto& [lease_id, lease] : leases_.all()) {
    if (lease.claims.session_id() == session_id) return lease;
  }
  return std::nullopt;
}

bool LeaseKeeper::HasSession(const std::string& session_id) const {
  MutexLock lock(&mu_);
  return leases_.HasSession(session_id);
}

std::vector<std::string> LeaseKeeper::LeasesOf(
    const std::string& session_id) const {
  std::vector<std::string> ids;
  MutexLock lock(&mu_);
  for (const auto& [lease_id, lease] : leases_.all()) {
    if (lease.claims.session_id() == session_id) ids.push_back(lease_id);
  }
  return ids;
}

std::vector<std::string> LeaseKeeper::Report(v1::WorkerState* state) const {
  const absl::Duration now = clock_->Monotonic();
  std::vector<std::string> ids;
  MutexLock lock(&mu_);
  for (const auto& [lease_id, lease] : leases_.all()) {
    ids.push_back(lease_id);
    v1::HeldSession* const held = state->add_sessions();
    *held->mutable_lease() = lease.newest;
    *held->mutable_lease_use() = lease.meter->use();
    held->set_out_of_credit(lease.meter->waiting());
    v1::Yielded yielded;
    if (lease.meter->yielded()->Describe(now, &yielded)) {
      *held->mutable_yielded() = std::move(yielded);
    }
  }
  for (const EndedLease& lease : ended_) {
    v1::EndedLease* const ended = state->add_ended_leases();
    *ended->mutable_lease() = lease.newest;
    // Read before the use, so that a settled lease reports all of it.
    ended->set_measuring(lease.measuring());
    *ended->mutable_use() = lease.meter->use();
  }
  return ids;
}

uint64_t LeaseKeeper::unbilled() const {
  MutexLock lock(&mu_);
  return unbilled_;
}

}  // namespace djinn::worker
