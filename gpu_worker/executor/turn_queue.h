// Orders the sessions that wait for a turn on the device, and answers what each
// of them waits for.
//
// Any thread adds work and asks; one executor thread takes turns and ends them.
// Turns nest: a turn that preempts another one is served inside it. One lock
// guards the fair queue together with what it is asked about: who is in
// service, who preempts whom, and who is expected to join a batch.
//
// The queue calls a session's atomics and nothing else of it, so that its lock
// comes after every other one of the worker.
#ifndef GPU_WORKER_EXECUTOR_TURN_QUEUE_H_
#define GPU_WORKER_EXECUTOR_TURN_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/tenant_labels.h"
#include "common/transport/stream.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/executor/executor_metrics.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/executor/time_account.h"
#include "gpu_worker/leases/lease_meter.h"
#include "gpu_worker/session/observe/served_time.h"
#include "gpu_worker/session/session.h"
#include "scheduler/batching/batch_forecast.h"
#include "scheduler/fairness/deadline_rule.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::worker {

// A session's turn on the device.
struct Turn {
  uint64_t key = 0;
  std::shared_ptr<Session> session;
  std::shared_ptr<LeaseMeter> meter;
  // Since when the session waited; infinite when that is not known.
  absl::Duration waits_since = absl::InfiniteDuration();
  // Set for a turn that only refuses the session's run: how much work is before
  // the run.
  std::optional<absl::Duration> refused_behind;
  // When the turn began; unset for a session that joined another one's turn.
  std::optional<absl::Duration> given;
};

class TurnQueue {
 public:
  struct Options {
    // Runs executed in one batch; 1: none.
    size_t max_batch_runs = 16;
    // Runs that make a token preempt prompts and training of their own priority
    // class.
    bool tokens_first = true;
  };
  // A session that may be added to another one's turn.
  struct Candidate {
    Turn turn;
    // As FairQueue::Batch::Member.
    bool ahead = false;
  };
  using Place = scheduler::BatchForecast::Place;

  // All outlive the queue.
  TurnQueue(const Options& options, Clock* clock, Preemption* preemption,
            TimeAccount* time, ServedTime* served, ExecutorMetrics* metrics)
      : options_(options),
        clock_(*clock),
        preemption_(*preemption),
        time_(*time),
        served_(*served),
        metrics_(*metrics) {}

  // --- Any thread.
  // Adds a session with the tenant's weight and the priority class that the
  // lease declares, and removes one; its key is its own.
  void Join(uint64_t key, std::shared_ptr<Session> session,
            std::shared_ptr<LeaseMeter> meter, double weight);
  void Leave(uint64_t key);
  // The stream that serves the session, from which an idle executor thread may
  // receive.
  void SetStream(uint64_t key, std::weak_ptr<WorkerStream> stream);
  // The tenant's weight has changed, or the session's priority.
  void Update(uint64_t key, double weight);
  // The session's runs are of another phase now.
  void UpdatePhase(uint64_t key);
  // The session may have work.
  void MakeRunnable(uint64_t key);
  // Sessions of these tenants may share batches with each other's.
  void SetBatchingTenants(absl::flat_hash_set<std::string> tenants);
  // No further turn is taken.
  void Stop();
  // Completes what the session says of its next message, which is ready: what
  // holds its turn. Nothing when it has its turn by now, or lacks credit.
  std::optional<v1::MessageWait> DescribeWait(uint64_t key,
                                              v1::MessageWait wait,
                                              absl::Duration now) const;
  // Whose turn preempts the session's at this moment, if any.
  std::optional<v1::RunPreemption> PreemptorOf(uint64_t key,
                                               absl::Duration now) const;
  // By tenant label: how long the session that waits longest has waited.
  std::map<std::string, absl::Duration> OldestWaits(TenantLabels* labels) const;

  // --- The executor thread.
  // Takes the next turn, perhaps only after its batching window. Waits for one,
  // or returns nothing at once if it is not to `wait`; nothing when stopped.
  std::optional<Turn> TakeTurn(bool wait);
  // As FairQueue::MayPreempt() for what the parts of a step have used so far;
  // takes the turn that preempts them, which EndPreempting() ends.
  scheduler::FairQueue::Preemption TakePreempting(
      absl::Span<const Preemption::Part> parts, absl::Duration end, Turn* turn);
  void EndPreempting();
  // Ends a turn of the session that used so much, and waits again if it has
  // more work.
  void EndTurn(const Turn& turn, absl::Duration used, bool more);
  // Ends a turn that did nothing.
  void EndUnused(const Turn& turn);
  // Whether a session of this tenant may share a batch with anyone.
  bool MayBatch(const std::string& tenant) const;
  // Sessions that wait with runs that may join the leader's turn. `contested`
  // as FairQueue::Batch.
  std::vector<Candidate> FindBatch(const Turn& leader, bool* contested) const;
  // The turns after the first one, the leader's, join it; their runs begin at
  // these places.
  void JoinBatch(absl::Span<Turn> turns, absl::Span<const Place> places,
                 bool contested, absl::Duration now);
  // A batch that began at the place took so long for what its runs shared.
  void NoteBatch(Place place, absl::Duration took);

 private:
  struct Member {
    std::shared_ptr<Session> session;
    std::shared_ptr<LeaseMeter> meter;
    // The one that serves the session, or served it last.
    std::weak_ptr<WorkerStream> stream;
    // Since when it waits for its turn; infinite when it does not.
    absl::Duration waits_since = absl::InfiniteDuration();
    // When its turn was then expected to begin, where that is known.
    std::optional<absl::Duration> expected_start;
  };
  // A turn that preempts the turn before it, or the one in service.
  struct Preempting {
    uint64_t key = 0;
    absl::Duration since;
    // Lives forever.
    const char* reason = "";
  };

  // Waits until a session is runnable or the queue stops. Receives from the
  // stream meanwhile where one session alone has been at work.
  void AwaitRunnable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReceiveFrom(std::shared_ptr<WorkerStream> stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits while the batch of the next turn is worth waiting for.
  void AwaitBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // When the batching window ends; `now` or earlier: there is none. The device
  // might have gone on at `since`.
  absl::Duration BatchUntil(absl::Duration since, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether sessions of the two tenants may share a batch.
  bool MayShare(const std::string& a, const std::string& b) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // If the session waits with a run that misses its deadline: how much work is
  // before the run at least.
  std::optional<absl::Duration> LateBehind(uint64_t key,
                                           absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<scheduler::InService> InService() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The session has begun to wait: has its run refused if it comes too late.
  void NoteWaiting(uint64_t key, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Turn> TakeRefusal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The turn of a session that was just taken.
  Turn TurnOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The device is the tenant's from `now` on.
  Turn Give(Turn turn, absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !queue_.empty();
  }
  scheduler::FairQueue::Work WorkOf(const Session& session) const {
    return {session.next().deadline(), session.next().expected(),
            PaceOf(session.next().phase())};
  }
  // How long runs of this phase are beside others.
  scheduler::FairQueue::Pace PaceOf(v1::Phase phase) const;

  const Options options_;
  Clock& clock_;
  Preemption& preemption_;
  TimeAccount& time_;
  ServedTime& served_;
  ExecutorMetrics& metrics_;

  mutable Mutex mu_;
  CondVar runnable_;
  scheduler::FairQueue queue_ ABSL_GUARDED_BY(mu_);
  // By the queue's keys.
  absl::flat_hash_map<uint64_t, Member> members_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The stream from which the idle executor thread receives, and that thread;
  // null while it does not.
  std::shared_ptr<WorkerStream> attended_ ABSL_GUARDED_BY(mu_);
  std::thread::id attendant_ ABSL_GUARDED_BY(mu_);
  // Who had the last turn, and how many it had in succession.
  uint64_t last_turn_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t turns_ ABSL_GUARDED_BY(mu_) = 0;
  // Who is in service, and when that turn is expected to end.
  uint64_t serving_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration served_by_ ABSL_GUARDED_BY(mu_);
  // The innermost last.
  std::vector<Preempting> preempting_ ABSL_GUARDED_BY(mu_);
  // Since when the next turn waits in its batching window.
  std::optional<absl::Duration> batching_since_ ABSL_GUARDED_BY(mu_);
  // Sessions whose runs are to be refused, in the order of their coming.
  std::deque<uint64_t> refusals_ ABSL_GUARDED_BY(mu_);
  // By the queue's keys.
  scheduler::BatchForecast forecast_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> batching_tenants_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_TURN_QUEUE_H_
