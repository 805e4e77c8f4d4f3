// Remembers which leases virtual devices had one after another, why each ended
// and what that cost, for the lineage picture.
#ifndef COORDINATOR_CONSOLE_LEASE_HISTORY_H_
#define COORDINATOR_CONSOLE_LEASE_HISTORY_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::console {

// One lease of a virtual device.
struct LeaseSpan {
  std::string lease, session, tenant, worker, placement_reason;
  uint32_t virtual_device = 0;
  uint32_t member = 0;
  absl::Time began;
  // InfiniteFuture while the lease is in force.
  absl::Time ended = absl::InfiniteFuture();
  // Why the lease was taken, as LeaseEnded.reason. Empty: it is in force, its
  // client returned it, or the coordinator did not say so yet.
  std::string end_reason;
  // With QUOTA_RECLAIMED: the tenant that took its own quota back.
  std::string for_tenant;
  // Device time that was used under the lease, as last reported.
  absl::Duration device_time;
};

// One migration, as it was last reported.
struct SeenMigration {
  std::string session, tenant;
  v1::MigrationInfo info;
  absl::Time decided;
};

// Not thread-safe.
class LeaseHistory {
 public:
  // Keeps at most `capacity` ended leases and `capacity` migrations, the last.
  explicit LeaseHistory(size_t capacity) : capacity_(capacity) {}

  // Compares the leases and migrations that exist at `now` with those before.
  void Update(const v1::ListLeasesResponse& leases,
              const v1::ListSessionsResponse& sessions, absl::Time now);
  // Gives leases that ended lately on a worker that is lost now that reason. A
  // client that cannot reach its worker returns the lease, often before the
  // coordinator finds the worker lost and says why the lease ended.
  void NoteLostWorkers(const v1::ListWorkersResponse& workers, absl::Time now);
  // Learns why the last lease of each of the session's devices was taken.
  void Explain(const v1::SessionExplanation& explanation, absl::Time now);

  const absl::flat_hash_map<std::string, LeaseSpan>& open() const {
    return open_;
  }
  // Oldest first.
  const std::deque<LeaseSpan>& ended() const { return ended_; }
  const std::deque<SeenMigration>& migrations() const { return migrations_; }

 private:
  void NoteMigration(const v1::SessionInfo& session,
                     const v1::MigrationInfo& info, absl::Time now);
  void AddEnded(LeaseSpan span);

  const size_t capacity_;
  absl::flat_hash_map<std::string, LeaseSpan> open_;
  std::deque<LeaseSpan> ended_;
  std::deque<SeenMigration> migrations_;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_LEASE_HISTORY_H_
