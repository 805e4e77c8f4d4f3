// The workers of the cluster as they last reported themselves.
//
// A worker joins with its first report, is ACTIVE while reports come in time,
// LOST after that, and forgotten long after. Its stream may break and come back
// in between. Level-based: every report replaces what the last one said.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_WORKER_REGISTRY_H_
#define COORDINATOR_WORKER_REGISTRY_H_

#include <cstdint>
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
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/hash.h"
#include "coordinator/token_bucket.h"
#include "coordinator/waker.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/usage.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "scheduler/scaling/demand.h"

namespace djinn::coordinator {

// Hash and size: what names a content within a tenant.
using ContentKey = std::pair<ContentHash, uint64_t>;

struct Worker {
  struct Held {
    std::string session_id;
    std::string tenant;
    uint64_t storage_count = 0;
    uint64_t storage_bytes = 0;
    // A client's stream uses the lease.
    bool attached = false;
    v1::SessionUse use;
    v1::LeaseUse lease_use;
    // Device time, since the report before.
    absl::Duration grown;
    bool out_of_credit = false;
    // Unset: its runs never gave way.
    std::optional<v1::GivenWay> given_way;
    // Unset: its next message waits for nothing, or it has none.
    std::optional<v1::MessageWait> wait;
  };

  std::string id;
  uint64_t incarnation = 0;
  std::string address;
  // Empty when there is none.
  std::string shared_memory_socket;
  std::string device;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  uint32_t queued_runs = 0;
  // By tenant.
  absl::flat_hash_map<std::string, absl::flat_hash_set<ContentKey>> contents;
  // Of these, those that were asked for since the last report.
  absl::flat_hash_map<std::string, std::vector<ContentKey>> by_size;
  uint64_t content_bytes = 0;
  uint32_t content_count = 0;
  struct Runs {
    uint64_t count = 0;
    absl::Duration device_time;
    uint64_t content_bytes = 0;
  };
  // By fingerprint.
  absl::flat_hash_map<std::string, Runs> graphs;
  // Of these, whose phase it is to be told, or which it is not yet known
  // whether it can be told: all on a new stream, then those that it began to
  // count since.
  absl::flat_hash_set<std::string> untold;
  // Of these, what was new in the last report; nothing in the first of a
  // process, which sums up what nobody saw.
  struct Ran {
    std::string fingerprint;
    uint64_t runs = 0;
    absl::Duration time;
  };
  std::vector<Ran> ran;
  // By lease id. What the registry's index has: changed by it alone.
  absl::flat_hash_map<std::string, Held> held;
  // What of it is of each tenant, as the worker says.
  absl::flat_hash_map<std::string, uint64_t> held_bytes;
  // Unset when it is lost.
  std::optional<v1::MemoryUse> memory;
  v1::CacheUse plan_cache;
  v1::CacheUse content_cache;
  // Unset: none is used.
  std::optional<v1::DiskUse> disk;
  v1::ExecutionUse executed;
  v1::DeviceSpeed speed;
  double price_per_hour = 0;
  uint64_t link_bytes_per_second = 0;
  // Measured, of clients' uploads; 0: not known.
  uint64_t client_bytes_per_second = 0;
  // Measured, by the worker at the other end.
  absl::btree_map<std::string, uint64_t> links;
  std::vector<std::string> capabilities;
  // Bit N stands for phase N; 0 for all.
  uint32_t phases = 0;
  // Of the last minute, by its reports: the share in which the device was busy,
  // and how long a run took; 0 as long as there was none.
  double busy_share = 0;
  double seconds_per_run = 0;
  // Device time of what its sessions have queued there, by phase.
  scheduler::PhaseAmounts queued_seconds = {};
  // This process of it has reported before.
  bool reported = false;

  // When it was lost last it had leases, on which it may serve its sessions:
  // the phases of their work, bit N for phase N, and until when, monotonic.
  uint32_t served_phases = 0;
  absl::Duration serves_until;

  v1::WorkerInfo::State state = v1::WorkerInfo::ACTIVE;
  // Monotonic.
  absl::Duration last_report;

  // The open stream's number; 0 when there is none.
  uint64_t stream = 0;
  std::shared_ptr<Waker> waker;
  // Of the last DesiredState sent on the stream.
  uint64_t revision = 0;
  absl::Duration last_sent;
  // The worker should hear something before the next heartbeat.
  bool dirty = true;

  // Sessions it must forget, each with the revision that first said so on this
  // stream (0: not said yet). An entry goes when the worker carried that out.
  std::map<std::string, uint64_t> drops;
  // Leases that ended here and that it may honour still, each likewise: it must
  // end them, and their final use is awaited.
  std::map<std::string, uint64_t> closing;
  // Leases whose final use it reports, each with the first save that has it
  // billed. Once that is kept, the worker is told and forgets them; their
  // accounts go when it has.
  std::map<std::string, uint64_t> settling;

  // What it has of the tenant, the largest first; until the next report.
  const std::vector<ContentKey>& ContentsBySize(const std::string& tenant);

  // That it cannot be left is said now and then, not at each attempt.
  TokenBucket logged_drains{2, 1.0 / 60};

  bool connected() const { return stream != 0; }
  bool usable() const { return connected() && state == v1::WorkerInfo::ACTIVE; }
};

class WorkerRegistry {
 public:
  struct Joined {
    Worker* worker = nullptr;
    // Another incarnation than the last time: it has forgotten everything.
    bool restarted = false;
    // Then: since that one's last report.
    absl::Duration silence;
    // The stream that the new one takes over from, if it was still open.
    std::shared_ptr<Waker> replaced;
  };

  // `timeout`: silence after which a worker is lost.
  explicit WorkerRegistry(absl::Duration timeout) : timeout_(timeout) {}

  // InvalidArgument (PROTOCOL_VIOLATION) for a report without identity or
  // address, or with texts that are too long to be kept.
  static absl::Status Check(const v1::WorkerState& report);

  // Binds a new stream to the worker and applies its first report. Errors: as
  // Check()'s; AlreadyExists (WORKER_ID_IN_USE) when another process with this
  // id is connected and has reported in time.
  absl::StatusOr<Joined> Join(const v1::WorkerState& report, uint64_t stream,
                              std::shared_ptr<Waker> waker, absl::Duration now);

  // Takes over what the report says, except sessions' leases and revisions.
  // Check() accepted it.
  void Apply(const v1::WorkerState& report, absl::Duration now, Worker* worker);

  // Ends the stream; the worker stays.
  void Disconnect(Worker* worker);

  // Active workers whose reports are overdue.
  std::vector<Worker*> Overdue(absl::Duration now);
  // Marks it LOST and empties what it reported.
  void MarkLost(Worker* worker);
  // Removes workers that have been lost for long, and names them.
  std::vector<std::string> Forget(absl::Duration now);

  // Null when unknown. Pointers stay valid until Forget().
  Worker* Find(const std::string& id);
  // By id.
  const std::map<std::string, std::unique_ptr<Worker>>& all() const {
    return workers_;
  }
  struct ById {
    bool operator()(const Worker* a, const Worker* b) const {
      return a->id < b->id;
    }
  };
  using Workers = absl::btree_set<Worker*, ById>;
  // Those whose last report has the graph, found without looking at the others.
  const Workers& WithGraph(const std::string& fingerprint) const;
  // Likewise those whose last report has a lease of the session, whosever it
  // says that it is.
  const Workers& WithSession(const std::string& session_id) const;

 private:
  // Of a report, what ran.
  void ApplyWork(const v1::WorkerState& report, absl::Duration now,
                 Worker* worker);
  void ForgetWork(Worker* worker);
  void Unlist(const std::string& fingerprint, Worker* worker);
  void SetHeld(absl::flat_hash_map<std::string, Worker::Held> held,
               Worker* worker);

  static const Workers& Indexed(
      const absl::flat_hash_map<std::string, Workers>& index,
      const std::string& key);

  const absl::Duration timeout_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
  // By fingerprint; none is empty.
  absl::flat_hash_map<std::string, Workers> with_graph_;
  // By id; none is empty.
  absl::flat_hash_map<std::string, Workers> with_session_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_WORKER_REGISTRY_H_
