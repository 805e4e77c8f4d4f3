// The leases that the coordinator granted on this worker: who may attach, with
// which limits, until when. A lease ages by this worker's own clock from the
// moment its grant arrived, so a coordinator that is away changes nothing else.
//
// Tokens are secrets: compared in constant time, never part of an error.
//
// Not thread-safe; reads no clock.
#ifndef GPU_WORKER_CORE_LEASE_TABLE_H_
#define GPU_WORKER_CORE_LEASE_TABLE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {

class LeaseTable {
 public:
  // Grants the lease, or renews one that is here. InvalidArgument for a record
  // without id, session, token or usable limits.
  absl::Status Grant(const v1::LeaseRecord& record, absl::Duration expires);

  // The lease that a client presents. Unauthenticated (LEASE_UNKNOWN) for a
  // wrong session or token; FailedPrecondition (STALE_EPOCH) when the session
  // has moved on, or presents an epoch that its lease is not for.
  absl::StatusOr<v1::LeaseRecord> Authenticate(const std::string& session_id,
                                               const std::string& token,
                                               uint64_t epoch) const;

  // The lease of this session with this token, whatever its epoch.
  // Unauthenticated (LEASE_UNKNOWN) when there is none.
  absl::StatusOr<v1::LeaseRecord> Find(const std::string& session_id,
                                       const std::string& token) const;

  // Removes and returns the ids of leases that ended.
  std::vector<std::string> TakeExpired(absl::Duration now);
  std::vector<std::string> TakeSession(const std::string& session_id);

  // Whether a lease of the session is here.
  bool HasSession(const std::string& session_id) const;

  std::vector<v1::LeaseRecord> List() const;
  bool Contains(const std::string& lease_id) const {
    return leases_.count(lease_id) > 0;
  }

 private:
  struct Lease {
    v1::LeaseRecord record;
    absl::Duration expires;
  };
  // By lease id; ordered, so that reports are stable.
  std::map<std::string, Lease> leases_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_LEASE_TABLE_H_
