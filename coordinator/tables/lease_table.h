// Records the leases that exist: which session may use which worker.
//
// A lease is first offered: listed to its worker, not yet shown to the client.
// When the worker has applied that, the lease is granted. It ends when it is
// removed; nothing is kept of it.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_LEASE_TABLE_H_
#define COORDINATOR_TABLES_LEASE_TABLE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "scheduler/placement/placement.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator {

struct KeptDecision {
  // Null when no decision was made.
  std::shared_ptr<const scheduler::Decision> decision;
  // Names the setter of the policy: "request", "session", "tenant" or
  // "cluster".
  const char* policy_source = "";
  // Monotonic time of the decision.
  absl::Duration time;
};

// Names one replica of a virtual device: the first or only one, or another one
// of a multi-worker device.
struct MemberId {
  uint32_t virtual_device = 0;
  uint32_t member = 0;

  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};

// More bytes than the id of any lease has.
constexpr size_t kMaxLeaseId = 64;

struct Lease {
  enum class State { kOffered, kGranted };

  std::string id;
  // The newest signed revision, which is secret, and its number. Empty and 0
  // before the lease is first listed.
  v1::SignedLease signed_revision;
  uint64_t revision = 0;
  // When the next revision must be signed; at once when something in it has
  // changed.
  absl::Time next_signing = absl::InfinitePast();
  std::string session_id;
  std::string tenant;
  uint64_t epoch = 0;
  MemberId device;
  std::string worker_id;
  uint64_t incarnation = 0;
  v1::SessionLimits limits;
  v1::TenantLimits tenant_limits;
  // The part of its tenant's quota that the lease holds.
  scheduler::Amounts quota = {};
  std::string placement_reason;
  // Null when the lease was adopted.
  KeptDecision decision;
  // Bytes that the session announced and the worker did not have when the lease
  // was made.
  uint64_t promised_bytes = 0;
  // Monotonic time.
  absl::Duration created;
  State state = State::kOffered;
  // True when an earlier process made the lease.
  bool adopted = false;
  // True when the lease's runs wait for credit, by the worker's last report.
  bool out_of_credit = false;
  // The id of the lease in use, whose virtual device is asked to use this one
  // instead. Empty once it does, and for all other leases.
  std::string migrates_from;
  // Monotonic time until which the virtual device is not asked to migrate.
  absl::Duration stays_until;

  bool migrating() const { return !migrates_from.empty(); }
};

class LeaseTable {
 public:
  // Adds a lease with a new id. Returns the table's copy.
  Lease* Add(Lease lease);
  // Removes the lease, if there is one with the id.
  void Remove(const std::string& id);

  // Returns the lease, or null. Pointers stay valid until Remove().
  Lease* Find(const std::string& id);
  // Returns the lease that the member of the virtual device uses, or is to use
  // first; null when there is none.
  Lease* FindDevice(const std::string& session_id, MemberId device);
  // Returns the lease that the virtual device is asked to use instead of
  // `from`; null when there is none.
  Lease* FindMigration(const Lease& from);

  // Return leases in the order of their ids.
  std::vector<Lease*> OfSession(const std::string& session_id) const;
  std::vector<Lease*> OfWorker(const std::string& worker_id) const;
  std::vector<Lease*> OfTenant(const std::string& tenant) const;
  // Returns whether the virtual device has leases of further members.
  bool Spans(const std::string& session_id, uint32_t virtual_device) const;
  size_t CountOfWorker(const std::string& worker_id) const;
  // Returns the worker's leases with promised bytes.
  std::vector<Lease*> PromisingOfWorker(const std::string& worker_id) const;
  // Stops counting the promised bytes of the lease.
  void EndPromise(Lease* lease);
  const std::map<std::string, std::unique_ptr<Lease>>& all() const {
    return leases_;
  }

 private:
  using Index = std::map<std::string, std::set<std::string>>;
  std::vector<Lease*> Of(const Index& index, const std::string& key) const;

  std::map<std::string, std::unique_ptr<Lease>> leases_;
  Index by_session_;
  Index by_worker_;
  Index by_tenant_;
  // By worker: leases with promised bytes.
  Index promising_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_LEASE_TABLE_H_
