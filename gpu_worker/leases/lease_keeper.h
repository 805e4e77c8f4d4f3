// Keeps this worker's leases: verifies the coordinator's signatures, and
// renews, presents and ends leases. Keeps the use of ended leases until the
// coordinator has settled it.
//
// Thread-safe. The keeper makes no callbacks; the caller that ends a lease ends
// its session.
#ifndef GPU_WORKER_LEASES_LEASE_KEEPER_H_
#define GPU_WORKER_LEASES_LEASE_KEEPER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/lease/lease_verifier.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/leases/lease_table.h"
#include "gpu_worker/leases/traffic.h"

namespace djinn::worker {

class LeaseKeeper {
 public:
  // `max_ended` bounds the ended leases that wait to be settled. `clock` and
  // `total`, which counts the bytes of all leases, must outlive the keeper. If
  // `one_tenant`, the first lease that the coordinator lists decides whose
  // leases clients may present.
  LeaseKeeper(std::string worker_id, uint64_t incarnation, size_t max_ended,
              Clock* clock, Traffic* total, bool one_tenant = false)
      : max_ended_(max_ended),
        one_tenant_(one_tenant),
        clock_(clock),
        leases_(std::move(worker_id), incarnation, total) {}

  // Learns and retires the keys of the coordinator, and renews all leases that
  // its stream has listed. The first message of a stream begins a new listing.
  void Learn(const v1::DesiredState& desired);
  // Returns the claims of the lease, verified now or when it arrived, or
  // Unauthenticated (LEASE_UNKNOWN).
  absl::StatusOr<v1::LeaseClaims> ClaimsOf(
      const v1::SignedLease& signed_lease) const;

  // Does what LeaseTable::Renew() does, for verified claims. Returns whether
  // the lease is new to this worker.
  absl::StatusOr<bool> Renew(const v1::SignedLease& signed_lease,
                             const v1::LeaseClaims& claims);
  // Does what LeaseTable::Present() does. The ends of the returned lease
  // include renewals of its listing.
  absl::StatusOr<Lease> Present(const v1::SignedLease& signed_lease,
                                const v1::LeaseClaims& claims,
                                const std::string& session_id, uint64_t epoch);

  // These end leases and return their ids.
  std::vector<std::string> EndExpired();
  std::vector<std::string> EndSession(const std::string& session_id);
  std::vector<std::string> EndLease(const std::string& lease_id);
  // Forgets ended leases whose use the coordinator has billed.
  void Settle(const absl::flat_hash_set<absl::string_view>& lease_ids);

  std::optional<Lease> Find(const std::string& lease_id) const;
  // Returns a lease of the session, if this worker has one.
  std::optional<Lease> FindSession(const std::string& session_id) const;
  bool HasSession(const std::string& session_id) const;
  std::vector<std::string> LeasesOf(const std::string& session_id) const;

  // Adds all leases to the report, those in force and those that ended. Returns
  // the ids of those in force, in the order of state->sessions().
  std::vector<std::string> Report(v1::WorkerState* state) const;
  // Returns how many ended leases are never billed, because too many waited to
  // be settled.
  uint64_t unbilled() const;

 private:
  struct EndedLease {
    std::string lease_id;
    v1::SignedLease newest;
    std::shared_ptr<LeaseMeter> meter;

    // Returns whether a session is left that may add to the lease's use.
    bool measuring() const;
  };

  LeaseTime Now() const { return {clock_->Monotonic(), clock_->Now()}; }
  std::vector<std::string> End(std::vector<Lease> leases)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_ended_;
  const bool one_tenant_;
  Clock* const clock_;
  LeaseVerifier verifier_;
  mutable Mutex mu_;
  LeaseTable leases_ ABSL_GUARDED_BY(mu_);
  // The only tenant, once known.
  std::string tenant_ ABSL_GUARDED_BY(mu_);
  // Ended leases that the coordinator has not settled.
  std::deque<EndedLease> ended_ ABSL_GUARDED_BY(mu_);
  uint64_t unbilled_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_LEASE_KEEPER_H_
