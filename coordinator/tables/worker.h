// Holds the facts about one worker, in parts by concern.
//
// Guarded by the cluster's lock.
#ifndef COORDINATOR_TABLES_WORKER_H_
#define COORDINATOR_TABLES_WORKER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/hash/hash.h"
#include "coordinator/tables/orders.h"
#include "coordinator/tables/token_bucket.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/usage.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "scheduler/scaling/demand.h"

namespace djinn::coordinator {

// Hash and size, which identify a content within a tenant.
using ContentKey = std::pair<ContentHash, uint64_t>;

// The facts in the worker's last report.
struct ReportedFacts {
  std::string address;
  // Empty when there is none.
  std::string shared_memory_socket;
  // By tenant, those that have endpoints of their own at the worker.
  absl::btree_map<std::string, v1::TenantEndpoint> endpoints;
  std::string device;
  // Empty when the worker promises no bits.
  std::string numerics;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  uint32_t queued_runs = 0;
  // Unset when the worker is lost.
  std::optional<v1::MemoryUse> memory;
  v1::CacheUse plan_cache;
  v1::CacheUse content_cache;
  // Unset when the worker keeps no contents on disk.
  std::optional<v1::DiskUse> disk;
  v1::ExecutionUse executed;
  v1::DeviceSpeed speed;
  double price_per_hour = 0;
  uint64_t link_bytes_per_second = 0;
  // Measured over clients' uploads; 0 if not known.
  uint64_t client_bytes_per_second = 0;
  // Measured bytes per second, by the worker at the other end.
  absl::btree_map<std::string, uint64_t> links;
  std::vector<std::string> capabilities;
  // Bit N stands for phase N; 0 for all.
  uint32_t phases = 0;
  // Unset when the device is no GPU.
  std::optional<v1::GpuHealth> gpu_health;
};

// The contents that the worker holds.
struct ReportedContents {
  // By tenant.
  absl::flat_hash_map<std::string, absl::flat_hash_set<ContentKey>> contents;
  // Contents by tenant, the largest first. Has the tenants whose contents were
  // requested since the last report.
  absl::flat_hash_map<std::string, std::vector<ContentKey>> by_size;
  uint64_t content_bytes = 0;
  uint32_t content_count = 0;
};

// The work that the worker executes.
struct WorkerLoad {
  struct Runs {
    uint64_t count = 0;
    absl::Duration device_time;
    uint64_t content_bytes = 0;
  };
  // By fingerprint.
  absl::flat_hash_map<std::string, Runs> graphs;
  // Graphs whose phase the worker must be told once it is known: all graphs on
  // a new stream, then those that it began to count since.
  absl::flat_hash_set<std::string> untold;
  // The runs that the last report added. Empty after the first report of a
  // process, which sums up everything before.
  struct Ran {
    std::string fingerprint;
    uint64_t runs = 0;
    absl::Duration time;
  };
  std::vector<Ran> ran;
  // The share of the last minute in which the device was busy, and the mean
  // seconds of a run; 0 before the first.
  double busy_share = 0;
  double seconds_per_run = 0;
  // Device time of its sessions' queued runs, by phase.
  scheduler::PhaseAmounts queued_seconds = {};
  // True when this process of the worker has reported before.
  bool reported = false;
};

// The leases in force at the worker, by its reports. Only the registry, which
// indexes them, changes this.
struct HeldLeases {
  struct Held {
    std::string session_id;
    std::string tenant;
    uint64_t storage_count = 0;
    uint64_t storage_bytes = 0;
    // True when a client's stream uses the lease.
    bool attached = false;
    v1::SessionUse use;
    v1::LeaseUse lease_use;
    // Device time that was added by the last report that names the lease.
    absl::Duration grown;
    bool out_of_credit = false;
    // Unset when its runs never yielded.
    std::optional<v1::Yielded> yielded;
    // Unset when it has no next message, or that waits for nothing.
    std::optional<v1::MessageWait> wait;
  };

  // By lease id.
  absl::flat_hash_map<std::string, Held> held;
  // The leases that the last report named.
  std::vector<std::string> changed;
  // The tenants of those among them that a client's stream has begun to use.
  absl::flat_hash_set<std::string> arrived;
  // Indices of `held`: the leases of each session, those whose runs wait for
  // credit, and those with queued runs.
  absl::flat_hash_map<std::string, absl::btree_set<std::string>> of_session;
  absl::btree_set<std::string> out_of_credit;
  absl::btree_set<std::string> queueing;
  // Storage bytes by tenant; a worker may report any number for each lease.
  absl::flat_hash_map<std::string, absl::uint128> held_bytes;
};

// The worker's stream, and what the next messages on it must contain.
struct WorkerLink {
  // 0 when there is no stream.
  uint64_t number = 0;
  std::shared_ptr<Waker> waker;
  // The revision of the last DesiredState that was sent, and when.
  uint64_t revision = 0;
  absl::Duration last_sent;
  // True when a message is due before the next heartbeat.
  bool dirty = true;
  // Leases that the next messages must list, and the monotonic time at which
  // all leases are next checked for those that must be signed again.
  std::set<std::string> unlisted;
  absl::Duration next_signing_check = -absl::InfiniteDuration();
  // Offered leases that this stream has listed, each with the revision that
  // listed it, until the worker acknowledges that. Revisions never decrease.
  std::deque<std::pair<uint64_t, std::string>> unacknowledged;
  // Workers that the next message must list as peers, and the incarnation and
  // address of those that this stream has listed.
  std::set<std::string> new_peers;
  std::map<std::string, std::pair<uint64_t, std::string>> told_peers;
};

// Sessions and leases that have ended here and may still exist at the worker.
struct WorkerEnds {
  // Sessions that the worker must forget. An entry is removed when the worker
  // has applied that and reports no lease of the session.
  Orders drops;
  // Leases that ended here and that the worker may still honour. An entry is
  // removed when the worker has applied the end and has reported the lease's
  // final use.
  Orders closing;
  // The ended leases that the worker reports and whose use may still grow.
  absl::flat_hash_set<std::string> measuring;
  // Leases whose final use the worker has reported. Once a save that includes
  // the bill is kept, the worker is told and forgets the lease. Then the
  // account is removed.
  struct Settling {
    // The number of the first save that includes the bill.
    uint64_t save = 0;
    // The revision that told the worker; 0 if this stream has not told it.
    uint64_t revision = 0;
  };
  std::map<std::string, Settling> settling;
};

struct Worker {
  using Held = HeldLeases::Held;
  using Ran = WorkerLoad::Ran;
  using Runs = WorkerLoad::Runs;
  using Settling = WorkerEnds::Settling;

  // Returns the session's leases at the worker, by its reports.
  const absl::btree_set<std::string>& LeasesOf(
      const std::string& session_id) const;
  // Returns whether this stream has listed the other worker with its present
  // incarnation and address.
  bool KnowsPeer(const Worker& other) const;
  // Returns the bytes of the tenant's storages at the worker.
  uint64_t HeldBytesOf(absl::string_view tenant) const;
  // Returns the tenant's contents at the worker, the largest first. Valid until
  // the next report.
  const std::vector<ContentKey>& ContentsBySize(const std::string& tenant);
  bool connected() const { return link.number != 0; }
  bool usable() const { return connected() && state == v1::WorkerInfo::ACTIVE; }

  std::string id;
  uint64_t incarnation = 0;
  v1::WorkerInfo::State state = v1::WorkerInfo::ACTIVE;
  // Monotonic time.
  absl::Duration last_report;
  // Set when the worker is lost: the phases of its sessions' work, bit N for
  // phase N, and the monotonic time until which it may serve them on their
  // leases.
  uint32_t served_phases = 0;
  absl::Duration serves_until;
  // Limits the log line that leases cannot leave the worker.
  TokenBucket logged_drains{2, 1.0 / 60};
  // Limits the log line that clients do not reach the worker.
  TokenBucket logged_unreached{4, 1.0 / 60};

  ReportedFacts facts;
  ReportedContents cache;
  WorkerLoad load;
  HeldLeases leases;
  WorkerLink link;
  WorkerEnds ends;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_WORKER_H_
