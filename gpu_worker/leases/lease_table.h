// The leases in force on this worker: which sessions may attach, with which
// limits and credits, until when.
//
// A lease arrives from the coordinator, which lists it, or from a client that
// presents it. Both bring a revision that the coordinator signed, and the
// caller has verified it. The lease ages by this worker's own clock from its
// receipt, so a coordinator that is away changes nothing else; no revision
// counts beyond the expiry that it names. A lease that ended never comes back.
// A listing is the set of leases that one stream of the coordinator names;
// RenewListed() renews all of them in constant time.
//
// Not thread-safe; reads no clock.
#ifndef GPU_WORKER_LEASES_LEASE_TABLE_H_
#define GPU_WORKER_LEASES_LEASE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/lease.pb.h"
#include "gpu_worker/leases/lease_meter.h"

namespace djinn::worker {

// One moment by both clocks.
struct LeaseTime {
  absl::Duration monotonic;
  absl::Time wall;
};

struct Lease {
  // The newest revision.
  v1::SignedLease newest;
  v1::LeaseClaims claims;
  // The revision that a client presented last.
  v1::SignedLease presented;
  // Monotonic times, from the receipt of this revision: until when sessions may
  // begin, and until when they may stay. A later renewal extends both
  // (LeaseTable).
  absl::Duration in_force;
  absl::Duration ends;
  // The listing that named the lease last; 0 when only a client presented it.
  uint64_t listing = 0;
  std::shared_ptr<LeaseMeter> meter;
};

class LeaseTable {
 public:
  // Maximum number of ended leases that the table remembers by id. Once the
  // table has forgotten older ones, every lease issued before the oldest
  // remembered one counts as ended, unless it is in force in the table.
  static constexpr size_t kMaxEnded = 65536;

  // Counts the bytes of all leases in `total`, which must outlive the table.
  LeaseTable(std::string worker_id, uint64_t incarnation, Traffic* total)
      : worker_id_(std::move(worker_id)),
        incarnation_(incarnation),
        total_(total) {}

  // Returns whether the table has this very revision, as the newest one or as
  // the one that a client presented last. If so, the revision was verified
  // before.
  bool Has(const v1::SignedLease& signed_lease,
           const v1::LeaseClaims& claims) const;

  // Puts a lease that the coordinator lists in force. Errors: InvalidArgument
  // (MALFORMED_LEASE) without id, session or usable limits; FailedPrecondition
  // (WRONG_WORKER, WRONG_INCARNATION) when it is for another process;
  // Unauthenticated (LEASE_EXPIRED, LEASE_UNKNOWN) when it has expired or
  // ended; FailedPrecondition (OLD_REVISION) when the table has a newer
  // revision, or another lease under the same id.
  absl::Status Renew(const v1::SignedLease& signed_lease,
                     const v1::LeaseClaims& claims, const LeaseTime& now);

  // Checks a lease that a client presents in a Hello. An older revision than
  // the table's is accepted. Errors: Unauthenticated (LEASE_UNKNOWN) when it is
  // another session's or worker's, or has ended; (LEASE_EXPIRED);
  // FailedPrecondition (WRONG_INCARNATION); (STALE_EPOCH) when the session has
  // a newer lease here for the same virtual device, or presents an epoch that
  // its lease is not for; and Renew()'s MALFORMED_LEASE. The pointer is valid
  // until the table changes.
  absl::StatusOr<const Lease*> Present(const v1::SignedLease& signed_lease,
                                       const v1::LeaseClaims& claims,
                                       const std::string& session_id,
                                       uint64_t epoch, const LeaseTime& now);

  // Starts the listing of a new stream: only the leases that Renew() names from
  // now on are renewed with it.
  void BeginListing();
  // Renews all leases of the current listing, up to the expiry that their
  // newest revisions name.
  void RenewListed(const LeaseTime& now) { renewed_ = now; }
  // These return the monotonic times until when sessions of the lease may
  // begin, and may stay.
  absl::Duration InForceUntil(const Lease& lease) const;
  absl::Duration EndOf(const Lease& lease) const;

  // These remove leases and return them, as ended.
  std::vector<Lease> TakeExpired(const LeaseTime& now);
  std::vector<Lease> TakeSession(const std::string& session_id);
  // Returns at most one lease.
  std::vector<Lease> TakeLease(const std::string& lease_id);

  // Returns whether the table has a lease of the session.
  bool HasSession(const std::string& session_id) const;
  // Returns the lease, or null. Valid until the table changes.
  const Lease* Find(const std::string& lease_id) const;

  // Returns the leases by id; ordered, so that reports are stable.
  const std::map<std::string, Lease>& all() const { return leases_; }

 private:
  absl::Status Check(const v1::LeaseClaims& claims, const LeaseTime& now) const;
  bool Ended(const v1::LeaseClaims& claims) const;
  void Add(const v1::SignedLease& signed_lease, const v1::LeaseClaims& claims,
           const LeaseTime& now);
  // If the lease is part of the current listing, returns when the listing's
  // last renewal ends: `valid_for` after that renewal, within what the newest
  // revision allows. Otherwise returns the infinite past.
  absl::Duration Renewed(const Lease& lease, absl::Duration valid_for) const;
  Lease Take(std::map<std::string, Lease>::iterator lease);
  void NoteEnd(const v1::LeaseClaims& claims);
  void Forget(absl::Time now);
  void ForgetFirst();

  const std::string worker_id_;
  const uint64_t incarnation_;
  Traffic* const total_;
  std::map<std::string, Lease> leases_;
  // The ids of each session's leases; no set is empty.
  absl::flat_hash_map<std::string, std::set<std::string>> of_session_;
  uint64_t listing_ = 1;
  LeaseTime renewed_ = {-absl::InfiniteDuration(), absl::InfinitePast()};
  struct End {
    // When the newest revision was issued.
    absl::Time issue_time;
    absl::Time expiry;
  };
  // Ended leases by id.
  absl::flat_hash_map<std::string, End> ended_;
  std::set<std::pair<absl::Time, std::string>> ended_by_expiry_;
  // Records of ended leases were dropped up to this time of issue. A lease
  // issued before it that is not in leases_ counts as ended.
  absl::Time forgotten_before_ = absl::InfinitePast();
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_LEASE_TABLE_H_
