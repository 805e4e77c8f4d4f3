// Keeps an executor process per tenant, and answers for all of them to the
// coordinator.
//
// The supervisor keeps one executor more than needed ready, because starting
// one takes seconds. The first lease of a tenant takes it. The tenant's clients
// reach their executor at its own sockets, so no run passes through the
// supervisor.
//
// When an executor ends, its tenant's leases on this worker end, too, and
// nothing else. The reasons are
// - EXECUTOR_LOST_IN_TURN for leases whose messages it was executing, or
//   NODE_LIMIT if a node took too long;
// - THREAD_LIMIT if it had too many threads, and LEASE_KEPT if it did not end a
//   lease: for the leases whose messages it was executing, or for all leases if
//   there were none;
// - EXECUTOR_LOST for the others, and for all leases if something else killed
//   the process.
// For a while, the executor's address still accepts connections and does not
// answer, so that clients learn the reason before the address refuses them.
//
// The tenant's next lease starts another executor: the first time at once, then
// after a pause that doubles with each death.
//
// Apply() and Snapshot() belong to a Synchronizer. One thread calls Step() in a
// loop. The other functions are thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_SUPERVISOR_H_
#define GPU_WORKER_SUPERVISOR_SUPERVISOR_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "common/metrics/tenant_labels.h"
#include "common/trace/span_exporter.h"
#include "common/transport/shared_memory/shared_region.h"
#include "djinn/v1/supervision.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/supervisor/arbiter.h"
#include "gpu_worker/supervisor/frames.h"
#include "gpu_worker/supervisor/launcher.h"
#include "gpu_worker/supervisor/metrics/joined_metrics.h"
#include "gpu_worker/supervisor/relay.h"

namespace djinn::worker {

struct SupervisorOptions {
  std::string worker_id;
  uint64_t incarnation = 0;
  // Memory of the device; each executor has an equal part of it.
  uint64_t memory_bytes = 0;
  // Most tenants that have an executor at a time.
  size_t max_executors = 4;
  // Most ended leases of ended executors that wait to be settled. Each executor
  // keeps as many of its own.
  size_t max_ended_leases = 65536;
  // The setup of every executor.
  v1::ExecutorSetup setup;
  // An executor that is not ready after this time is ended.
  absl::Duration start_timeout = absl::Seconds(60);
  // The pause after a tenant's second death in succession, and its maximum.
  absl::Duration min_backoff = absl::Seconds(1);
  absl::Duration max_backoff = absl::Seconds(30);
  // An executor is ended when one node takes longer than this or its tenant's
  // own limit.
  absl::Duration node_limit = absl::Minutes(5);
  // Processors that executors share, and threads with which each computes
  // (device.threads). An executor may have so many threads, and some more.
  size_t processors = std::max(1u, std::thread::hardware_concurrency());
  size_t computing_threads = 0;
  // Serves the requests of the executor with this number over the socket, as
  // long as the result lives. The thread of Step() calls it, and destroys the
  // result, without locks. Null: executors fetch nothing.
  std::function<std::shared_ptr<void>(uint64_t number, Descriptor socket)>
      serve_fetching;
  // Serves the executor's contents, like serve_fetching. Null: contents are
  // kept in executors alone.
  std::function<std::shared_ptr<void>(uint64_t number, Descriptor socket)>
      serve_contents;
  // Takes the spans of executors, and outlives the supervisor. Null: executors
  // make none.
  SpanExporter* spans = nullptr;
};

// Returns the pause of a tenant after so many deaths in succession.
absl::Duration BackoffOf(const SupervisorOptions& options, int deaths);

// One process, or one that is due to start (executor_record.h).
struct ExecutorRecord;

class Supervisor {
 public:
  // The time after which a tenant's deaths are forgotten.
  static constexpr absl::Duration kForgiveAfter = absl::Minutes(10);

  // All pointers must outlive the supervisor, and so must `changed`, which is
  // called without locks when the coordinator should learn something soon.
  Supervisor(SupervisorOptions options, Launcher* launcher, Arbiter* arbiter,
             Clock* clock, std::function<void()> changed);
  // Calls Stop().
  ~Supervisor();

  // Passes orders on to the tenants' executors. Does not wait for any.
  void Apply(const v1::DesiredState& desired);
  // Returns the worker's state, complete except for its address.
  v1::WorkerState Snapshot() const;
  // Adds the addresses, which must arrive together with an acknowledgement.
  void DescribeEndpoints(v1::WorkerState* state) const;

  // Sets the certificate of all executors, present and future ones.
  void SetTls(const v1::TlsTexts& tls);
  // Sets what gRPC health says of all executors, present and future ones.
  // Without a call it says that they do not serve.
  void SetServing(bool serving);

  // Starts executors that are due, reads and writes messages for `patience` at
  // most, and notices executors that ended. Call it in the thread that lives as
  // long as the executors.
  void Step(absl::Duration patience);
  // Has Step() return soon.
  void Wake() { RaiseEvent(wake_.get()); }

  // Returns OK if any executor was ever ready. Otherwise returns Unavailable,
  // which says how the last executor ended, if one did.
  absl::Status Ready() const;
  // Returns the speed and the numerics that the first executor reported.
  v1::ExecutorReady facts() const;

  // Returns the largest amount of memory that an executor reports as available
  // from the device; 0 if none reports any.
  uint64_t available_bytes() const;

  // Returns the executor's tenant; empty when it has none, or has ended.
  std::string TenantOf(uint64_t executor) const;
  // Has Step() end the executor, for this reason.
  void Refuse(uint64_t executor, const absl::Status& why);

  // Returns whether the executor has a lease of the session.
  bool HasSession(uint64_t executor, const std::string& session_id) const;
  // Returns the address of the executor that has the session; empty when none
  // has.
  std::string AddressOf(const std::string& session_id) const;

  // Tells executors to end, and kills those that have not ended in time. Call
  // it in the thread of Step(), once that has returned for good.
  void Stop();

  // Adds the supervisor's own metrics.
  void Collect(Exposition* out) const;
  // Adds the metrics of executors, present and past, except for families that
  // `out` has already: an executor must not change the supervisor's own.
  void CollectExecutors(Exposition* out) const;

 private:
  using Executor = ExecutorRecord;
  struct Tenant {
    // Deaths in succession, and the time of the last one.
    int deaths = 0;
    absl::Duration last_death;
    uint64_t all_deaths = 0;
  };
  using Executors = std::map<uint64_t, std::shared_ptr<Executor>>;
  using LeasesByTenant = std::map<std::string, std::vector<v1::SignedLease>>;

  // Returns when the tenant's next executor may start.
  absl::Duration StartOf(const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Executor> FindLocked(const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes an executor that Step() starts at `start`.
  absl::StatusOr<std::shared_ptr<Executor>> Make(absl::Duration start)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the tenant's executor. Takes the one that is ready, or makes one,
  // for which an executor of none of the tenants `kept` may end.
  absl::StatusOr<std::shared_ptr<Executor>> ExecutorFor(
      const std::string& tenant, const LeasesByTenant& kept)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Has an executor without leases end, to make room for another tenant, but
  // none of the tenants `kept`. Returns false when there is none.
  bool EndIdleLocked(const LeasesByTenant& kept)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that a lease ended here, for the coordinator.
  void NoteEnd(const std::string& lease_id, v1::EndedLease ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseLeases(const std::vector<v1::SignedLease>& leases,
                    const absl::Status& why);

  // Sends the message to the executors that run. The others get what it says as
  // they start.
  void SendToAll(const v1::ToExecutor& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LaunchDue() ABSL_LOCKS_EXCLUDED(mu_);
  void KeepSpare() ABSL_LOCKS_EXCLUDED(mu_);
  void Exchange(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);
  // Looks at the threads and leases of executors, and has those end that have
  // too many threads, or leases beyond their end.
  void Measure() ABSL_LOCKS_EXCLUDED(mu_);
  // An executor that is about to be heard, with facts that do not change in
  // what it said before it got its next orders.
  struct Peer {
    std::shared_ptr<Executor> executor;
    std::string tenant;
    size_t leases = 0;
  };
  SharedFamilies Families() const ABSL_LOCKS_EXCLUDED(mu_);
  // Reads what has arrived, parses it without the lock, and handles it. Returns
  // an error when the executor must end.
  absl::Status Receive(const Peer& peer) ABSL_LOCKS_EXCLUDED(mu_);
  // Handles a message whose fields were checked.
  absl::Status Handle(v1::FromExecutor message, Executor* executor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Kills and reaps the process, and ends its leases.
  void Destroy(const std::shared_ptr<Executor>& executor,
               const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  const SupervisorOptions options_;
  Launcher* const launcher_;
  Arbiter* const arbiter_;
  Clock* const clock_;
  const std::function<void()> changed_;
  const Descriptor wake_;

  // When Exchange() read last, and Measure() measured; belong to the thread of
  // Step().
  absl::Duration last_exchange_;
  absl::Duration last_measured_;
  absl::Duration next_lease_check_;

  // One lock guards the executors and what is kept of those that are gone: an
  // executor's end moves its leases, use and metrics from one to the other, and
  // a report must have them once. Nothing waits under it. Sockets are written
  // without blocking; processes are started, measured and reaped without it.
  mutable Mutex mu_;
  Executors executors_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Listeners of executors that died, and when they close.
  std::deque<std::pair<absl::Duration, Descriptor>> closing_
      ABSL_GUARDED_BY(mu_);
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);
  StandingOrders orders_ ABSL_GUARDED_BY(mu_);
  // Ended leases of executors that have ended, until they are settled.
  std::map<std::string, v1::EndedLease> ended_ ABSL_GUARDED_BY(mu_);
  // Ended leases that were forgotten before they were settled.
  uint64_t unbilled_ ABSL_GUARDED_BY(mu_) = 0;
  // Work of executors that have ended.
  v1::ExecutionUse executed_ ABSL_GUARDED_BY(mu_);
  uint64_t refused_calls_ ABSL_GUARDED_BY(mu_) = 0;
  // Executors that ended and were not asked to, by reason.
  std::map<std::string, uint64_t> ends_ ABSL_GUARDED_BY(mu_);
  mutable TenantLabels tenant_labels_;
  // Declared by the first executor before it served anybody; empty before.
  SharedFamilies families_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<ExecutorFamilies>();
  JoinedMetrics past_metrics_ ABSL_GUARDED_BY(mu_);
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  v1::ExecutorReady facts_ ABSL_GUARDED_BY(mu_);
  // Unset without TLS.
  std::optional<v1::TlsTexts> tls_ ABSL_GUARDED_BY(mu_);
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status last_failure_ ABSL_GUARDED_BY(mu_);
  // Deaths in succession of executors that no tenant had, and the last one.
  Tenant spare_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_SUPERVISOR_H_
