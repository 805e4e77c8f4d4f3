// The tables of the cluster, and the lock that guards them.
//
// The rules are functions over this, one header for each concern. Functions
// that require the lock get it from their callers; the others take it
// themselves. The holder of the lock may keep pointers into the tables, as
// Session* and Worker*, until their entries are removed. The clock and the
// random source are injected, no table starts a thread, and nothing here knows
// gRPC, so a test or a simulation can drive a cluster on its own.
#ifndef COORDINATOR_TABLES_CLUSTER_STATE_H_
#define COORDINATOR_TABLES_CLUSTER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "coordinator/config/config.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_metrics.h"
#include "coordinator/tables/lease_keys.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/lineage_inquiries.h"
#include "coordinator/tables/page.h"
#include "coordinator/tables/queue_stops.h"
#include "coordinator/tables/quota_overrides.h"
#include "coordinator/tables/run_inquiries.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/unreached_workers.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/reservation.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/reclaim_losses.h"
#include "scheduler/scaling/demand.h"

namespace djinn::coordinator {

// Keeps the latest jobs, so that operators can replay them.
//
// Drops the oldest job when there are too many. Not thread-safe: the cluster's
// lock guards it.
class JobRecorder {
 public:
  // With `max_jobs` 0, nothing is to be recorded.
  explicit JobRecorder(size_t max_jobs) : max_jobs_(max_jobs) {}

  bool records() const { return max_jobs_ > 0; }
  void Add(v1::RecordedJob job);
  // Returns a page of jobs, the oldest first.
  Page<v1::RecordedJob> List(const PageRange& range) const;

 private:
  const size_t max_jobs_;
  uint64_t last_ = 0;
  // By number, as text of fixed length.
  std::map<std::string, v1::RecordedJob> jobs_;
};

// Records which workers get no new leases, and when leases are next considered
// for migration.
//
// Invariant: every draining worker is cordoned. Guarded by the cluster's lock.
struct Moves {
  // Ids of cordoned workers, including those that are away.
  std::set<std::string> cordoned;
  // Workers whose sessions migrate to other workers.
  std::set<std::string> draining;
  // Workers that are about to stop: processes that said so, and until when it
  // counts. They are as good as cordoned and draining, and no operator's
  // matter.
  struct Leaving {
    uint64_t incarnation = 0;
    absl::Duration until;
  };
  std::map<std::string, Leaving> leaving;

  // Return whether a worker gets no new leases, and whether its sessions
  // migrate.
  bool Cordoned(const std::string& id) const {
    return cordoned.contains(id) || leaving.contains(id);
  }
  bool Draining(const std::string& id) const {
    return draining.contains(id) || leaving.contains(id);
  }
  // When rebalancing is due, and the id of the last lease that it considered.
  absl::Duration next_rebalance;
  std::string last_rebalanced;
};

// Data for placement decisions: the fleet, and what was learned of work.
//
// Invariant: `fleet` has exactly the usable workers, each as it was last
// refreshed. Those in `stale` have lost leases since. Guarded by the cluster's
// lock.
struct Knowledge {
  explicit Knowledge(uint64_t seed) : draws(seed) {}

  scheduler::Fleet fleet;
  std::set<std::string> stale;
  WorkTable works;
  scheduler::Randomness draws;
  scheduler::ArrivalMeter arrivals;
};

// Accounts for the device time and bytes that leases use: the ledger of
// accounts, and the allowances of tenants whose credit grows with time.
//
// Invariant: an offered lease has an account until its worker reports no more
// of it and its use is saved. Guarded by the cluster's lock.
struct Billing {
  CreditLedger ledger;
  // Allowances of device time, in seconds, and of bytes.
  scheduler::RateBudget device_rates{scheduler::RateBudget::kMinSeconds,
                                     scheduler::RateBudget::kMaxSeconds};
  scheduler::RateBudget byte_rates{64 << 10, 1 << 30};
};

// Records what tenants hold of their quotas, and what borrowers lost when it
// was taken back.
//
// Invariant: `tree` holds exactly the quota of all leases and restored leases.
// Guarded by the cluster's lock.
struct Quotas {
  Quotas(std::vector<Cohort> configured, absl::Duration loss_limit)
      : cohorts(std::move(configured)), losses(loss_limit) {}

  // Cohorts as configured.
  std::vector<Cohort> cohorts;
  // Quotas that operators set. The tenants in force have them.
  QuotaOverrides overrides;
  scheduler::QuotaTree tree;
  // Device time of sessions from which borrowed quota was taken back.
  double lost_device_seconds = 0;
  scheduler::ReclaimLosses losses;
};

// Lease requests that wait for a worker.
//
// Invariant: a pending request has a ticket exactly when it is in `unplaced`
// and in `line`. Guarded by the cluster's lock.
struct WaitingRequests {
  explicit WaitingRequests(absl::Duration patience) : reservation(patience) {}

  // The order in which requests without an offered lease are tried, and the
  // session and member of each.
  scheduler::WaitQueue line;
  std::map<scheduler::WaitQueue::Ticket, std::pair<std::string, MemberId>>
      unplaced;
  // The worker that is reserved for the first request.
  scheduler::Reservation reservation;
  // Tenants whose requests are not tried because an operator stopped their
  // queues.
  QueueStops stops;
  // True when something may have become free since the requests were tried.
  bool untried = false;
  // Monotonic time from which a worker's report may have them tried again.
  absl::Duration next_retry;
  // Monotonic time from which memory to take back may be searched again.
  absl::Duration next_room_look;
};

// A lease of an earlier process that no worker has reported to this one.
struct RestoredLease {
  v1::StoredLease lease;
  // Empty when the worker is not known.
  std::string worker_id;
  // The tenant, and what the lease holds of its quota.
  std::string tenant;
  scheduler::Amounts quota = {};
};

// Records what an earlier process left.
//
// Invariant: a lease is in `leases` here or in the lease table, never in both.
// Guarded by the cluster's lock.
struct EarlierProcess {
  // True when no state of an earlier process was restored.
  bool none = true;
  // The earlier process's leases by id, until they are adopted, until their
  // workers join without them, or until their sessions end.
  std::map<std::string, RestoredLease> leases;
  // Workers that had those leases, until they join or are given up, because
  // they may still serve. The value has bit N set for phase N of their work.
  // Workers that are not known share an empty name.
  std::map<std::string, uint32_t> workers;
  // When `leases` and `workers` are given up, monotonic; infinite once they
  // are.
  absl::Duration until = absl::InfiniteDuration();
};

// Records which state is on disk. Guarded by the cluster's lock.
struct Saving {
  // The number of saves so far, and the last save that is kept.
  uint64_t saves = 0;
  uint64_t kept = 0;
  // Monotonic time before which the program memory is not encoded again.
  absl::Duration next_program_memory;
};

struct ClusterState {
  // All arguments must outlive the state.
  ClusterState(const Config* config, Tenants* tenants, Clock* clock,
               RandomSource* random);

  // FindSession() and FindWorker() return the owner of the stream; null when
  // the owner is gone or has another stream by now.
  Session* FindSession(const StreamId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Worker* FindWorker(const StreamId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns the session of the stream, which is never null. Returns Replaced()
  // when the session is gone or has another stream by now, or the reason why
  // the session has ended.
  absl::StatusOr<Session*> FindOpenSession(const StreamId& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns the status for a stream whose session has another one by now:
  // Aborted (SESSION_ATTACHED_ELSEWHERE).
  static absl::Status Replaced();
  // Returns Unavailable (NOT_LEADER) to a peer that has seen a later term than
  // this process has.
  absl::Status CheckTerm(uint64_t known_term) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Finds a session by its id or the shortened form; null when there is none.
  const Session* FindForOperator(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns what the lease's worker last reported of it, or null.
  const Worker::Held* HeldFor(const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Returns the work of the session, or else of its program; null if neither is
  // known.
  SharedWork WorkOf(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const Config& config;
  Tenants* const tenants;
  Clock* const clock;
  RandomSource* const random;
  ClusterMetrics metrics;
  // Monotonic time at which this process began.
  const absl::Duration begin;

  // Serialises saves; taken before mu.
  Mutex saving_mu;
  // The program memory as it was encoded last.
  std::map<std::string, std::string> saved_program_memory
      ABSL_GUARDED_BY(saving_mu);

  // Guards all tables. They share one lock because one event touches most of
  // them: a granted lease takes quota, credit and room at a worker, and changes
  // the wait queue, in one step that other threads must not see by halves. No
  // call under it blocks.
  Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  // Term in which this process leads, which every message to clients and
  // workers carries. 0: the process was not elected. Fixed before the first
  // stream.
  uint64_t term ABSL_GUARDED_BY(mu) = 0;
  uint64_t last_stream ABSL_GUARDED_BY(mu) = 0;
  WorkerRegistry workers ABSL_GUARDED_BY(mu);
  SessionTable sessions ABSL_GUARDED_BY(mu);
  LeaseTable leases ABSL_GUARDED_BY(mu);
  LeaseKeys keys ABSL_GUARDED_BY(mu);
  Billing billing ABSL_GUARDED_BY(mu);
  Quotas quotas ABSL_GUARDED_BY(mu);
  Saving saving ABSL_GUARDED_BY(mu);
  EarlierProcess earlier ABSL_GUARDED_BY(mu);
  WaitingRequests queue ABSL_GUARDED_BY(mu);
  UnreachedWorkers unreached ABSL_GUARDED_BY(mu);
  // Ids of connected workers that have not reported for worker_silence.
  std::set<std::string> silent ABSL_GUARDED_BY(mu);
  Knowledge known ABSL_GUARDED_BY(mu);
  Moves moves ABSL_GUARDED_BY(mu);
  JobRecorder jobs ABSL_GUARDED_BY(mu);
  RunInquiries inquiries ABSL_GUARDED_BY(mu);
  LineageInquiries lineage_inquiries ABSL_GUARDED_BY(mu);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_CLUSTER_STATE_H_
