// A worker without its network: composes the lease keeper, the stream table,
// the executor and the caches.
//
// The coordinator's DesiredState grants leases through Apply(). A transport
// hands each client connection to Attach(). The connection's first message must
// be a Hello that presents a lease; from then on the connection feeds a
// Session. The executor gives sessions with work their turns on the device.
//
// A thread keeps house (housekeeping.h). It reads the given clock, so a fake
// clock drives everything. A simulation runs the worker without threads of its
// own: it calls RunReady() whenever it has moved the clock or delivered a
// message.
//
// Thread-safe. The core's lock guards the change listener alone.
#ifndef GPU_WORKER_CORE_WORKER_CORE_H_
#define GPU_WORKER_CORE_WORKER_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/metrics/exposition.h"
#include "common/transport/stream.h"
#include "djinn/v1/bulk.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/core/device_watch.h"
#include "gpu_worker/core/housekeeping.h"
#include "gpu_worker/core/worker_report.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/executor/executor.h"
#include "gpu_worker/executor/turn_gate.h"
#include "gpu_worker/leases/lease_keeper.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gpu_worker/pull/send_order.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/session/uploads/upload_rate.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/content_store.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/memory_relief.h"
#include "gpu_worker/streams/stream_table.h"

namespace djinn::worker {

struct WorkerCoreOptions {
  std::string worker_id;
  // The incarnation for which leases are signed; 0: a random one.
  uint64_t incarnation = 0;
  // Whether to serve only the tenant of the first lease.
  bool one_tenant = false;
  GraphCache::Options graph_cache;
  // Keeps contents on disk; null when the worker has no disk store. The core
  // starts it.
  std::shared_ptr<ContentStore> store;
  // See TurnQueue::Options.
  size_t max_batch_runs = 16;
  bool tokens_first = true;
  TurnGate* gate = nullptr;
  // Most unsettled proof challenges at a time, over all tenants that share
  // contents.
  size_t max_challenges = 256;
  absl::Duration transfer_idle_timeout = absl::Seconds(30);
  // How long an offer to another worker waits to be fetched.
  absl::Duration offer_timeout = absl::Minutes(10);
  // See StreamTable::Options.
  absl::Duration hello_timeout = absl::Seconds(10);
  size_t max_connections = 16384;
  absl::Duration resume_timeout = absl::Seconds(15);
  // Most ended leases that wait to be settled.
  size_t max_ended_leases = 65536;
  // How often housekeeping checks deadlines.
  absl::Duration housekeeping_interval = absl::Milliseconds(100);
  // See WorkerHello.
  v1::DeviceSpeed speed;
  std::string numerics;
  // See DeviceWatch.
  uint64_t min_free_bytes = 0;
  // Housekeeping calls it once, when the device can no longer serve any
  // session.
  std::function<void(const absl::Status&)> device_broken;
  // True when the worker runs in threads of its own; false when only RunReady()
  // runs it.
  bool own_threads = true;
  // Takes the spans of traced runs, and outlives the core. May be null.
  SpanSink* spans = nullptr;
};

class WorkerCore {
 public:
  // All pointers must outlive the core.
  WorkerCore(WorkerCoreOptions options, Device* device, Clock* clock,
             RandomSource* random);
  // Calls Shutdown().
  ~WorkerCore();

  // Serves a client connection, which is not started yet.
  void Attach(std::unique_ptr<WorkerStream> stream,
              StreamWay way = StreamWay::kLocal);

  // Returns the id of the lease that a Bulk call presents, or Unauthenticated
  // (LEASE_UNKNOWN) when this worker has no such lease.
  absl::StatusOr<std::string> LeaseOf(const v1::BulkHello& hello) const;

  // Serves another worker's request for an offer. The claimant receives the
  // offer's outcome (offer_table.h), or Execution.Pull's errors.
  void Pull(const v1::PullRequest& request,
            std::shared_ptr<OfferClaimant> claimant);
  // Returns the send priority that the session's lease implies; the default
  // when the session has no lease here.
  SendUrgency UrgencyOf(const std::string& session_id) const;
  void AbandonPull(const OfferClaimant* claimant) { offers_.Abandon(claimant); }
  // Call it before the first Apply(). The connector must outlive the core's
  // threads.
  void SetPeers(PeerConnector* connector) { pulls_.SetConnector(connector); }

  // Ends every session (UNAVAILABLE, DRAINING) and the threads; refuses later
  // connections. Returns when all streams are destroyed. A call that overlaps
  // or follows another one returns at once.
  void Shutdown();

  // Returns the state to report to the coordinator, complete except for address
  // and applied_revision.
  v1::WorkerState Snapshot() const { return report_.Snapshot(); }
  // Grants, renews and drops leases. Takes effect before it returns.
  void Apply(const v1::DesiredState& desired);
  // Sets the function that the core calls, from any thread and without locks,
  // when Snapshot() changed in a way that the coordinator should learn soon.
  // The function that it replaces may still run in another thread.
  void SetChangeListener(std::function<void()> listener);

  // Serves the turns that are ready and does one round of housekeeping, in the
  // caller's thread. Returns whether there was a turn. Call it only without
  // own_threads.
  bool RunReady();

  // Returns 0 while no turn is served, and otherwise a number that stays the
  // same between two calls only if no node was completed meanwhile.
  uint64_t MarkProgress() { return executor_.MarkProgress(); }

  // Adds the worker's metrics to a scrape.
  void Collect(Exposition* out) const {
    report_.Collect(out);
    watch_.Collect(options_.worker_id, out);
  }

  uint64_t incarnation() const { return incarnation_; }
  // Returns how many sessions lost their stream and wait for another one.
  size_t detached_sessions() const { return streams_.detached_sessions(); }
  const ExecutionCounters& counters() const { return counters_; }
  const GraphCache& graphs() const { return graphs_; }
  const ContentCache& contents() const { return contents_; }
  const Ledger& ledger() const { return ledger_; }
  const OfferTable& offers() const { return offers_; }
  const LeaseKeeper& leases() const { return leases_; }
  DeviceWatch* device_watch() { return &watch_; }
  Device* device() const { return device_; }
  absl::Duration transfer_idle_timeout() const {
    return options_.transfer_idle_timeout;
  }

 private:
  void NotifyChange();

  const WorkerCoreOptions options_;
  Device* const device_;
  Clock* const clock_;
  const uint64_t incarnation_;

  Mutex mu_;
  std::function<void()> change_listener_ ABSL_GUARDED_BY(mu_);

  SessionMetrics metrics_;
  // The traffic of all leases.
  Traffic traffic_;
  Ledger ledger_;
  DeviceMemory memory_;
  ContentCache contents_;
  MemoryRelief relief_;
  GraphCache graphs_;
  ContentProofs proofs_;
  ExecutionCounters counters_;
  OfferTable offers_;
  PeerPulls pulls_;
  LinkRates link_rates_;
  UploadRate upload_rate_;
  LeaseKeeper leases_;
  Executor executor_;
  const SessionEnvironment environment_;
  StreamTable streams_;
  WorkerReport report_;
  DeviceWatch watch_;
  Housekeeping housekeeping_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_WORKER_CORE_H_
