// The leases that exist: which session may use which worker.
//
// A lease is first offered: listed to its worker, not yet shown to the client.
// When the worker has carried that out it is granted. It ends when it is
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
  // Null when there was none.
  std::shared_ptr<const scheduler::Decision> decision;
  // What set its policy: "request", "session", "tenant" or "cluster".
  const char* policy_source = "";
  // Monotonic.
  absl::Duration time;
};

// Names one replica of a virtual device: the first or only one, or another one
// of a multi-worker device.
struct MemberId {
  uint32_t virtual_device = 0;
  uint32_t member = 0;

  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};

// More bytes than any lease's id has.
constexpr size_t kMaxLeaseId = 64;

struct Lease {
  enum class State { kOffered, kGranted };

  std::string id;
  // The newest, and which one it is; none before it is first listed. Secret.
  v1::SignedLease issue;
  uint64_t issue_number = 0;
  // When the next issue is due; at once when something in it has changed.
  absl::Time reissue_time = absl::InfinitePast();
  std::string session_id;
  std::string tenant;
  uint64_t epoch = 0;
  MemberId device;
  std::string worker_id;
  uint64_t incarnation = 0;
  v1::SessionLimits limits;
  v1::TenantLimits tenant_limits;
  // The part of its tenant's quota that it holds.
  scheduler::Amounts quota = {};
  std::string placement_reason;
  // Null when it was adopted.
  KeptDecision decision;
  // Bytes that the session announced and the worker does not have.
  uint64_t promised_bytes = 0;
  // Monotonic.
  absl::Duration created;
  State state = State::kOffered;
  // An earlier process made it.
  bool adopted = false;
  // Its runs wait for credit, by the worker's last report.
  bool out_of_credit = false;
  // The lease whose virtual device is asked to use this one instead; empty once
  // it does, and for all others.
  std::string migrates_from;
  // Monotonic: not asked to go before.
  absl::Duration stays_until;

  bool migrating() const { return !migrates_from.empty(); }
};

class LeaseTable {
 public:
  // The id must be new.
  Lease* Add(Lease lease);
  void Remove(const std::string& id);

  // Null when there is none. Pointers stay valid until Remove().
  Lease* Find(const std::string& id);
  // The one that the member of its virtual device uses, or is to use first.
  Lease* FindDevice(const std::string& session_id, MemberId device);
  // The one that its virtual device is asked to use instead.
  Lease* FindMigration(const Lease& from);

  // In order of ids.
  std::vector<Lease*> OfSession(const std::string& session_id) const;
  std::vector<Lease*> OfWorker(const std::string& worker_id) const;
  std::vector<Lease*> OfTenant(const std::string& tenant) const;
  // The virtual device has several workers, or is about to.
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
