#include "gpu_worker/leases/lease_table.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"

namespace djinn::worker {
namespace {

absl::Status Unknown(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_UNKNOWN", why);
}

absl::Status Expired(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_EXPIRED", why);
}

bool IsComplete(const v1::LeaseClaims& claims) {
  const v1::SessionLimits& limits = claims.limits();
  const v1::TenantLimits& tenant = claims.tenant_limits();
  return !claims.lease_id().empty() && !claims.session_id().empty() &&
         limits.memory_bytes() > 0 && limits.max_outstanding() > 0 &&
         limits.max_outstanding_bytes() > 0 && limits.max_graphs() > 0 &&
         (!claims.has_tenant_limits() ||
          (tenant.memory_bytes() > 0 && tenant.max_outstanding() > 0 &&
           tenant.max_outstanding_bytes() > 0));
}

// Returns whether both are revisions of one lease of one session.
bool SameRight(const v1::LeaseClaims& a, const v1::LeaseClaims& b) {
  return a.lease_id() == b.lease_id() && a.tenant() == b.tenant() &&
         a.session_id() == b.session_id() &&
         a.session_epoch() == b.session_epoch() &&
         a.virtual_device() == b.virtual_device();
}

}  // namespace

absl::Status LeaseTable::Check(const v1::LeaseClaims& claims,
                               const LeaseTime& now) const {
  if (!IsComplete(claims)) {
    return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_LEASE",
                     absl::StrCat("lease '", claims.lease_id(),
                                  "' lacks an id, session or limit"));
  }
  if (claims.worker_id() != worker_id_) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "WRONG_WORKER",
        absl::StrCat("the lease is for worker '", claims.worker_id(), "'"));
  }
  if (claims.worker_incarnation() != incarnation_) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                     "the worker restarted since the lease was granted");
  }
  // A lease that is in the table ages by this worker's clock alone.
  if (leases_.contains(claims.lease_id())) return absl::OkStatus();
  if (Ended(claims)) return Unknown("the lease has ended on this worker");
  const absl::Time expiry = FromProtoTimestamp(claims.expire_time());
  if (expiry <= now.wall) {
    return Expired(absl::StrCat("the lease expired at ",
                                absl::FormatTime(expiry, absl::UTCTimeZone()),
                                " by this worker's clock"));
  }
  return absl::OkStatus();
}

bool LeaseTable::Ended(const v1::LeaseClaims& claims) const {
  return ended_.contains(claims.lease_id()) ||
         FromProtoTimestamp(claims.issue_time()) < forgotten_before_;
}

void LeaseTable::Add(const v1::SignedLease& signed_lease,
                     const v1::LeaseClaims& claims, const LeaseTime& now) {
  Lease& lease = leases_[claims.lease_id()];
  if (lease.meter == nullptr) {
    lease.meter = std::make_shared<LeaseMeter>(total_, claims.lease_id());
  }
  lease.newest = signed_lease;
  lease.claims = claims;
  of_session_[claims.session_id()].insert(claims.lease_id());
  lease.meter->SetCredits(claims);
  const absl::Duration most =
      FromProtoTimestamp(claims.expire_time()) - now.wall;
  const absl::Duration valid_for = FromProtoDuration(claims.valid_for());
  const absl::Duration grace = FromProtoDuration(claims.grace());
  lease.in_force = now.monotonic + std::min(valid_for, most);
  lease.ends = now.monotonic + std::min(valid_for + grace, most);
}

bool LeaseTable::Has(const v1::SignedLease& signed_lease,
                     const v1::LeaseClaims& claims) const {
  const Lease* const lease = Find(claims.lease_id());
  const auto same = [&](const v1::SignedLease& known) {
    return TokensEqual(signed_lease.signature(), known.signature()) &&
           signed_lease.claims() == known.claims();
  };
  return lease != nullptr && (same(lease->newest) || same(lease->presented));
}

absl::Status LeaseTable::Renew(const v1::SignedLease& signed_lease,
                               const v1::LeaseClaims& claims,
                               const LeaseTime& now) {
  DJINN_RETURN_IF_ERROR(Check(claims, now));
  const Lease* const held = Find(claims.lease_id());
  if (held != nullptr && (claims.revision() < held->claims.revision() ||
                          !SameRight(claims, held->claims))) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "OLD_REVISION",
                     absl::StrCat("revision ", claims.revision(), " of lease '",
                                  claims.lease_id(), "', where revision ",
                                  held->claims.revision(),
                                  " is known, or another session's"));
  }
  Add(signed_lease, claims, now);
  leases_.at(claims.lease_id()).listing = listing_;
  return absl::OkStatus();
}

absl::StatusOr<const Lease*> LeaseTable::Present(
    const v1::SignedLease& signed_lease, const v1::LeaseClaims& claims,
    const std::string& session_id, uint64_t epoch, const LeaseTime& now) {
  if (claims.session_id() != session_id) {
    return Unknown("the lease is another session's");
  }
  if (claims.worker_id() != worker_id_) {
    return Unknown("the lease is for another worker");
  }
  DJINN_RETURN_IF_ERROR(Check(claims, now));
  const Lease* const held = Find(claims.lease_id());
  if (held != nullptr && !SameRight(claims, held->claims)) {
    return Unknown("the lease is another one under the same id");
  }
  uint64_t newest_epoch = claims.session_epoch();
  if (HasSession(session_id)) {
    for (const std::string& lease_id : of_session_.at(session_id)) {
      const v1::LeaseClaims& other = leases_.at(lease_id).claims;
      if (other.virtual_device() != claims.virtual_device()) continue;
      newest_epoch = std::max(newest_epoch, other.session_epoch());
    }
  }
  if (epoch != claims.session_epoch() || epoch < newest_epoch) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_EPOCH",
                     absl::StrCat("session epoch ", epoch,
                                  ", the lease is for ", claims.session_epoch(),
                                  ", the worker knows ", newest_epoch));
  }
  if (held == nullptr) Add(signed_lease, claims, now);
  Lease& lease = leases_.at(claims.lease_id());
  lease.presented = signed_lease;
  return &lease;
}

void LeaseTable::BeginListing() {
  ++listing_;
  renewed_ = {-absl::InfiniteDuration(), absl::InfinitePast()};
}

absl::Duration LeaseTable::Renewed(const Lease& lease,
                                   absl::Duration valid_for) const {
  if (lease.listing != listing_) return -absl::InfiniteDuration();
  const absl::Duration most =
      FromProtoTimestamp(lease.claims.expire_time()) - renewed_.wall;
  return renewed_.monotonic + std::min(valid_for, most);
}

absl::Duration LeaseTable::InForceUntil(const Lease& lease) const {
  return std::max(lease.in_force,
                  Renewed(lease, FromProtoDuration(lease.claims.valid_for())));
}

absl::Duration LeaseTable::EndOf(const Lease& lease) const {
  return std::max(lease.ends,
                  Renewed(lease, FromProtoDuration(lease.claims.valid_for()) +
                                     FromProtoDuration(lease.claims.grace())));
}

Lease LeaseTable::Take(std::map<std::string, Lease>::iterator lease) {
  NoteEnd(lease->second.claims);
  const auto others = of_session_.find(lease->second.claims.session_id());
  others->second.erase(lease->first);
  if (others->second.empty()) of_session_.erase(others);
  Lease taken = std::move(lease->second);
  leases_.erase(lease);
  return taken;
}

std::vector<Lease> LeaseTable::TakeExpired(const LeaseTime& now) {
  Forget(now.wall);
  std::vector<Lease> taken;
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const auto next = std::next(lease);
    if (EndOf(lease->second) <= now.monotonic) taken.push_back(Take(lease));
    lease = next;
  }
  return taken;
}

std::vector<Lease> LeaseTable::TakeSession(const std::string& session_id) {
  std::vector<Lease> taken;
  while (HasSession(session_id)) {
    taken.push_back(Take(leases_.find(*of_session_.at(session_id).begin())));
  }
  return taken;
}

std::vector<Lease> LeaseTable::TakeLease(const std::string& lease_id) {
  std::vector<Lease> taken;
  const auto lease = leases_.find(lease_id);
  if (lease != leases_.end()) taken.push_back(Take(lease));
  return taken;
}

void LeaseTable::NoteEnd(const v1::LeaseClaims& claims) {
  const absl::Time expiry = FromProtoTimestamp(claims.expire_time());
  const End end = {FromProtoTimestamp(claims.issue_time()), expiry};
  if (!ended_.emplace(claims.lease_id(), end).second) return;
  ended_by_expiry_.emplace(expiry, claims.lease_id());
  if (ended_.size() > kMaxEnded) ForgetFirst();
}

void LeaseTable::Forget(absl::Time now) {
  while (!ended_by_expiry_.empty() && ended_by_expiry_.begin()->first <= now) {
    ForgetFirst();
  }
}

void LeaseTable::ForgetFirst() {
  const auto first = ended_by_expiry_.begin();
  const auto forgotten = ended_.find(first->second);
  // The client has this revision or an older one. The revision's expiry would
  // keep the client away as well, unless a clock is set back.
  forgotten_before_ = std::max(
      forgotten_before_, forgotten->second.issue_time + absl::Nanoseconds(1));
  ended_.erase(forgotten);
  ended_by_expiry_.erase(first);
}

bool LeaseTable::HasSession(const std::string& session_id) const {
  return of_session_.contains(session_id);
}

const Lease* LeaseTable::Find(const std::string& lease_id) const {
  const auto found = leases_.find(lease_id);
  return found == leases_.end() ? nullptr : &found->second;
}

}  // namespace djinn::worker
