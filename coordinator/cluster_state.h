// What the cluster knows: its tables, and the one lock that guards them.
//
// The cluster's rules are functions over this, one header for each concern
// (cluster.cc lists them). Most take the state with its lock held; those that
// have more to do besides, Save() and Restore() in cluster_persistence.h and
// all in cluster_runs.h, take the lock themselves. Whoever holds it may keep
// pointers into the tables, as Session* and Worker*, until their entries are
// removed.
#ifndef COORDINATOR_CLUSTER_STATE_H_
#define COORDINATOR_CLUSTER_STATE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/random.h"
#include "coordinator/cluster_metrics.h"
#include "coordinator/config.h"
#include "coordinator/credit_ledger.h"
#include "coordinator/job_recorder.h"
#include "coordinator/lease_keys.h"
#include "coordinator/lease_table.h"
#include "coordinator/queue_stops.h"
#include "coordinator/run_inquiries.h"
#include "coordinator/session_table.h"
#include "coordinator/stream_id.h"
#include "coordinator/tenants.h"
#include "coordinator/work_table.h"
#include "coordinator/worker_registry.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "scheduler/fairness/waiting_line.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/reservation.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/rate_budget.h"
#include "scheduler/quota/reclaim_losses.h"
#include "scheduler/scaling/demand.h"

namespace djinn::coordinator {

// A lease of which nobody has told since the process began.
struct RestoredLease {
  v1::StoredLease lease;
  // Empty: not known.
  std::string worker_id;
  // What it holds of whose quota.
  std::string tenant;
  scheduler::Amounts quota = {};
};

struct ClusterState {
  // All must outlive the state.
  ClusterState(const Config* config, Tenants* tenants, Clock* clock,
               RandomSource* random);

  // Null when the stream is not its session's, or worker's, any more.
  Session* FindSession(const StreamId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Worker* FindWorker(const StreamId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Not null. Replaced(), or why the session has ended.
  absl::StatusOr<Session*> FindOpenSession(const StreamId& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What the stream of a session that another one attached to is told: Aborted
  // (SESSION_ATTACHED_ELSEWHERE).
  static absl::Status Replaced();
  // By the id or its shortened form; null when there is none.
  const Session* FindForOperator(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What the lease's worker last said of it; null when it said nothing.
  const Worker::Held* HeldFor(const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What is known of the session's, or else of its program's; may be null.
  SharedWork WorkOf(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const Config& config;
  Tenants* const tenants;
  Clock* const clock;
  RandomSource* const random;
  ClusterMetrics metrics;
  // Monotonic.
  const absl::Duration begin;

  // Held for a whole Save(); taken before mu.
  Mutex saving_mu;
  // What was learnt of work, as it was encoded last.
  std::map<std::string, std::string> saved_learnt ABSL_GUARDED_BY(saving_mu);

  Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  uint64_t last_stream ABSL_GUARDED_BY(mu) = 0;
  WorkerRegistry workers ABSL_GUARDED_BY(mu);
  SessionTable sessions ABSL_GUARDED_BY(mu);
  LeaseTable leases ABSL_GUARDED_BY(mu);
  LeaseKeys keys ABSL_GUARDED_BY(mu);
  CreditLedger ledger ABSL_GUARDED_BY(mu);
  // As configured.
  std::vector<Cohort> cohorts ABSL_GUARDED_BY(mu);
  scheduler::QuotaTree quotas ABSL_GUARDED_BY(mu);
  // With sessions that others' quota was taken back from.
  double lost_device_seconds ABSL_GUARDED_BY(mu) = 0;
  scheduler::ReclaimLosses losses ABSL_GUARDED_BY(mu);
  // In seconds, and in bytes.
  scheduler::RateBudget device_rates ABSL_GUARDED_BY(mu){
      scheduler::RateBudget::kMinSeconds, scheduler::RateBudget::kMaxSeconds};
  scheduler::RateBudget byte_rates ABSL_GUARDED_BY(mu){64 << 10, 1 << 30};
  // How often the state was saved, and the last of these that is kept.
  uint64_t saves ABSL_GUARDED_BY(mu) = 0;
  uint64_t kept_saves ABSL_GUARDED_BY(mu) = 0;
  // Nothing is known of an earlier process.
  bool first_process ABSL_GUARDED_BY(mu) = true;
  // Leases of an earlier process, by id, until they are adopted, or their
  // workers or sessions have come or gone without them.
  std::map<std::string, RestoredLease> restored ABSL_GUARDED_BY(mu);
  // Workers that had them, and the phases of their work, bit N for phase N,
  // until they have joined, or nobody will: they may serve on, whatever became
  // of the sessions here. All that are not known go by an empty name.
  std::map<std::string, uint32_t> awaited ABSL_GUARDED_BY(mu);
  // When nobody will tell of those any more; infinite once they are forgotten.
  absl::Duration restored_until ABSL_GUARDED_BY(mu) = absl::InfiniteDuration();
  // Pending requests without an offered lease, and the order in which they are
  // tried.
  scheduler::WaitingLine line ABSL_GUARDED_BY(mu);
  std::map<scheduler::WaitingLine::Ticket, std::pair<std::string, MemberId>>
      unplaced ABSL_GUARDED_BY(mu);
  scheduler::Reservation reservation ABSL_GUARDED_BY(mu);
  QueueStops queue_stops ABSL_GUARDED_BY(mu);
  // Something may have become free since they were tried.
  bool untried ABSL_GUARDED_BY(mu) = false;
  // When reports may have them tried again.
  absl::Duration next_retry ABSL_GUARDED_BY(mu);
  // When room may be looked for that others give back.
  absl::Duration next_room_look ABSL_GUARDED_BY(mu);
  // What decisions are made from, but for the workers that have changed since:
  // those of leases that have ended.
  scheduler::Fleet fleet ABSL_GUARDED_BY(mu);
  std::set<std::string> stale ABSL_GUARDED_BY(mu);
  WorkTable works ABSL_GUARDED_BY(mu);
  // When it is encoded again, if it has learnt something.
  absl::Duration next_learnt ABSL_GUARDED_BY(mu);
  scheduler::Randomness draws ABSL_GUARDED_BY(mu);
  scheduler::ArrivalMeter arrivals ABSL_GUARDED_BY(mu);
  JobRecorder jobs ABSL_GUARDED_BY(mu);
  RunInquiries inquiries ABSL_GUARDED_BY(mu);
  // Ids of workers, also of those that are away.
  std::set<std::string> cordoned ABSL_GUARDED_BY(mu);
  // Of these, those whose sessions are to go on elsewhere.
  std::set<std::string> draining ABSL_GUARDED_BY(mu);
  // When better places are looked for next, and the last lease looked at.
  absl::Duration next_rebalance ABSL_GUARDED_BY(mu);
  std::string last_rebalanced ABSL_GUARDED_BY(mu);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_STATE_H_
