// The leases that are in force on this worker: who may attach, with which
// limits and credits, until when.
//
// A lease comes from the coordinator, which lists it, or from a client that
// presents it; both bring what the coordinator signed, checked before it gets
// here. It ages by this worker's own clock from its receipt, so a coordinator
// that is away changes nothing else; no issue counts beyond the time that it
// names itself. One that ended never comes back. A listing is what one stream
// of the coordinator names; RenewListed() renews all of its leases in constant
// time.
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
  // The newest issue.
  v1::SignedLease issue;
  v1::LeaseClaims claims;
  // The issue that a client presented last.
  v1::SignedLease presented;
  // Monotonic, by the receipt of this issue: until when sessions may begin, and
  // until when they may stay. A later renewal extends both (LeaseTable).
  absl::Duration in_force;
  absl::Duration ends;
  // The listing that named it last; 0: no listing did, a client presented it.
  uint64_t listing = 0;
  std::shared_ptr<LeaseMeter> meter;
};

class LeaseTable {
 public:
  // Ended leases that are remembered by name. Beyond them, every lease issued
  // before the oldest of these counts as ended, unless it is here.
  static constexpr size_t kMaxEnded = 65536;

  // `total`: where bytes of all leases are counted; outlives the table.
  LeaseTable(std::string worker_id, uint64_t incarnation, Traffic* total)
      : worker_id_(std::move(worker_id)),
        incarnation_(incarnation),
        total_(total) {}

  // Whether this very issue is here, as the newest one or as the one that a
  // client presented last: it was checked then.
  bool Has(const v1::SignedLease& issue, const v1::LeaseClaims& claims) const;

  // The coordinator lists the lease: it is in force from now on. Errors:
  // InvalidArgument (MALFORMED_LEASE) without id, session or usable limits;
  // FailedPrecondition (WRONG_WORKER, WRONG_INCARNATION) when it is another
  // process'; Unauthenticated (LEASE_EXPIRED, LEASE_UNKNOWN) when it has
  // expired or ended; FailedPrecondition (OLD_ISSUE) when a newer one is here,
  // or one for somebody else.
  absl::Status Renew(const v1::SignedLease& issue,
                     const v1::LeaseClaims& claims, const LeaseTime& now);

  // A client presents the lease in a Hello. An older issue than the one that is
  // here will do. Errors: Unauthenticated (LEASE_UNKNOWN) when it is another
  // session's or worker's, or has ended; (LEASE_EXPIRED);
  // FailedPrecondition (WRONG_INCARNATION); (STALE_EPOCH) when the session has
  // a newer lease here for the same virtual device, or presents an epoch that
  // its lease is not for; and Renew()'s MALFORMED_LEASE. The pointer is valid
  // until the table changes.
  absl::StatusOr<const Lease*> Present(const v1::SignedLease& issue,
                                       const v1::LeaseClaims& claims,
                                       const std::string& session_id,
                                       uint64_t epoch, const LeaseTime& now);

  // Starts the listing of a new stream: only the leases that Renew() names from
  // now on are renewed with it.
  void BeginListing();
  // Renews all leases of the current listing, up to the time that their newest
  // issues name.
  void RenewListed(const LeaseTime& now) { renewed_ = now; }
  // Monotonic: until when sessions of the lease may begin, and may stay.
  absl::Duration InForceUntil(const Lease& lease) const;
  absl::Duration EndOf(const Lease& lease) const;

  // Removes and returns leases that ended.
  std::vector<Lease> TakeExpired(const LeaseTime& now);
  std::vector<Lease> TakeSession(const std::string& session_id);
  // None, or the one.
  std::vector<Lease> TakeLease(const std::string& lease_id);

  // Whether a lease of the session is here.
  bool HasSession(const std::string& session_id) const;
  // Null when there is none. Valid until the table changes.
  const Lease* Find(const std::string& lease_id) const;

  // By lease id; ordered, so that reports are stable.
  const std::map<std::string, Lease>& all() const { return leases_; }

 private:
  absl::Status Check(const v1::LeaseClaims& claims, const LeaseTime& now) const;
  bool Ended(const v1::LeaseClaims& claims) const;
  void Add(const v1::SignedLease& issue, const v1::LeaseClaims& claims,
           const LeaseTime& now);
  // Returns when the current listing's last renewal ends, if the lease is part
  // of it: `valid_for` after it, within what the issue allows.
  absl::Duration Renewed(const Lease& lease, absl::Duration valid_for) const;
  Lease Take(std::map<std::string, Lease>::iterator lease);
  void NoteEnd(const v1::LeaseClaims& claims);
  void Forget(absl::Time now);
  void ForgetFirst();

  const std::string worker_id_;
  const uint64_t incarnation_;
  Traffic* const total_;
  std::map<std::string, Lease> leases_;
  // By session: the ids of its leases; none is empty.
  absl::flat_hash_map<std::string, std::set<std::string>> of_session_;
  uint64_t listing_ = 1;
  LeaseTime renewed_ = {-absl::InfiniteDuration(), absl::InfinitePast()};
  struct End {
    // Of the newest issue.
    absl::Time issue;
    absl::Time expiry;
  };
  // By lease id.
  absl::flat_hash_map<std::string, End> ended_;
  std::set<std::pair<absl::Time, std::string>> ended_by_expiry_;
  // Leases issued before this are ended unless they are here.
  absl::Time forgotten_before_ = absl::InfinitePast();
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_LEASE_TABLE_H_
