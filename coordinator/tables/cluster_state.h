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

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "coordinator/config/config.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/billing.h"
#include "coordinator/tables/cluster_metrics.h"
#include "coordinator/tables/job_recorder.h"
#include "coordinator/tables/knowledge.h"
#include "coordinator/tables/lease_keys.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/moves.h"
#include "coordinator/tables/quotas.h"
#include "coordinator/tables/run_inquiries.h"
#include "coordinator/tables/saved_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/wait_queue.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator {

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
  // The tuning cache as it was encoded last.
  std::map<std::string, std::string> saved_learned ABSL_GUARDED_BY(saving_mu);

  // Guards all tables. They share one lock because one event touches most of
  // them: a granted lease takes quota, credit and room at a worker, and changes
  // the wait queue, in one step that other threads must not see by halves. No
  // call under it blocks.
  Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  uint64_t last_stream ABSL_GUARDED_BY(mu) = 0;
  WorkerRegistry workers ABSL_GUARDED_BY(mu);
  SessionTable sessions ABSL_GUARDED_BY(mu);
  LeaseTable leases ABSL_GUARDED_BY(mu);
  LeaseKeys keys ABSL_GUARDED_BY(mu);
  Billing billing ABSL_GUARDED_BY(mu);
  Quotas quotas ABSL_GUARDED_BY(mu);
  Saving saving ABSL_GUARDED_BY(mu);
  EarlierProcess earlier ABSL_GUARDED_BY(mu);
  WaitQueue queue ABSL_GUARDED_BY(mu);
  Knowledge known ABSL_GUARDED_BY(mu);
  Moves moves ABSL_GUARDED_BY(mu);
  JobRecorder jobs ABSL_GUARDED_BY(mu);
  RunInquiries inquiries ABSL_GUARDED_BY(mu);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_CLUSTER_STATE_H_
