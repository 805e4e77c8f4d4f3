// Signs leases as a coordinator does, for tests of workers.
#ifndef COMMON_LEASE_TESTING_LEASE_AUTHORITY_H_
#define COMMON_LEASE_TESTING_LEASE_AUTHORITY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/base/proto_duration.h"
#include "common/lease/lease_signer.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn {

// Signs leases with a key of its own. Not thread-safe.
class LeaseAuthority {
 public:
  // Returns a lease of the tenant's session with limits for small tests, not
  // yet for a worker.
  static v1::LeaseClaims Claims(const std::string& lease_id,
                                const std::string& session_id,
                                const std::string& tenant) {
    v1::LeaseClaims claims;
    claims.set_lease_id(lease_id);
    claims.set_session_id(session_id);
    claims.set_session_epoch(1);
    claims.set_tenant(tenant);
    v1::SessionLimits* const limits = claims.mutable_limits();
    limits->set_memory_bytes(64 << 20);
    limits->set_max_outstanding(64);
    limits->set_max_outstanding_bytes(1 << 20);
    limits->set_inline_bytes(1024);
    limits->set_max_graphs(4);
    return claims;
  }

  // Returns the next revision of the lease. It is valid until the year 2100
  // unless the claims say otherwise.
  v1::SignedLease Issue(v1::LeaseClaims claims, const std::string& worker_id,
                        uint64_t incarnation,
                        absl::Duration valid_for = absl::Hours(1)) {
    claims.set_worker_id(worker_id);
    claims.set_worker_incarnation(incarnation);
    claims.set_revision(++revisions_);
    if (!claims.has_expire_time()) {
      claims.mutable_expire_time()->set_seconds(4'102'444'800);
    }
    *claims.mutable_valid_for() = ToProtoDuration(valid_for);
    return signer_.Sign(claims);
  }

  // Lists the lease and the key in `desired`.
  void List(const v1::SignedLease& lease, v1::DesiredState* desired) const {
    *desired->add_leases() = lease;
    if (desired->lease_keys().empty()) {
      *desired->add_lease_keys() = signer_.public_key();
    }
  }

  const LeaseSigner& signer() const { return signer_; }

 private:
  const LeaseSigner signer_ =
      LeaseSigner::FromSeed(std::string(LeaseSigner::kSeedBytes, 't')).value();
  uint64_t revisions_ = 0;
};

}  // namespace djinn

#endif  // COMMON_LEASE_TESTING_LEASE_AUTHORITY_H_
