// Orders the sessions that wait for a turn on the device, and reports what each
// of them waits for.
//
// Any thread adds work and asks; one executor thread takes turns and ends them.
// Turns nest: a turn that preempts another one is served inside it. One lock
// guards the fair queue together with the state it depends on: which session is
// in service, which preempts which, and which is expected to join a batch.
//
// The queue reads a session's atomics and calls nothing else of the session, so
// its lock comes after every other lock of the worker.
#ifndef GPU_WORKER_EXECUTOR_TURN_QUEUE_H_
#define GPU_WORKER_EXECUTOR_TURN_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
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
#include "gpu_worker/executor/idle_receiver.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/executor/time_account.h"
#include "gpu_worker/executor/turn_gate.h"
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
  // When the session began to wait; infinite when that is not known.
  absl::Duration waits_since = absl::InfiniteDuration();
  // Set for a turn that only refuses the session's run: how much work is ahead
  // of the run.
  std::optional<absl::Duration> refused_behind;
  // When the turn began; unset for a session that joined another one's turn.
  std::optional<absl::Duration> given;
};

class TurnQueue {
 public:
  struct Options {
    // Most runs executed in one batch; 1 turns batching off.
    size_t max_batch_runs = 16;
    // Runs that make a token preempt prompts and training of their own priority
    // class.
    bool tokens_first = true;
    // Entered for each turn; null if no other process uses the device. It must
    // outlive the queue.
    TurnGate* gate = nullptr;
  };
  // A session that may be added to another one's turn.
  struct Candidate {
    Turn turn;
    // See FairQueue::Batch::Member.
    bool ahead = false;
  };
  using Place = scheduler::BatchForecast::Place;

  // All pointers must outlive the queue.
  TurnQueue(const Options& options, Clock* clock, Preemption* preemption,
            TimeAccount* time, ServedTime* served, ExecutorMetrics* metrics)
      : options_(options),
        clock_(*clock),
        preemption_(*preemption),
        time_(*time),
        served_(*served),
        metrics_(*metrics) {}

  // --- Any thread.

  // Join() adds a session with the tenant's weight and the priority class that
  // the lease declares, and Leave() removes it. No two sessions may have the
  // same key.
  void Join(uint64_t key, std::shared_ptr<Session> session,
            std::shared_ptr<LeaseMeter> meter, double weight);
  void Leave(uint64_t key);
  // Sets the stream that serves the session. An idle executor thread may
  // receive from it.
  void SetStream(uint64_t key, std::weak_ptr<WorkerStream> stream);
  // Applies a change of the tenant's weight or the session's priority.
  void Update(uint64_t key, double weight);
  // Applies a change of the phase of the session's runs.
  void UpdatePhase(uint64_t key);
  // Notes that the session may have work.
  void MakeRunnable(uint64_t key);
  // Sets the tenants whose sessions may share batches with one another.
  void SetBatchingTenants(absl::flat_hash_set<std::string> tenants);
  // Makes TakeTurn() return nothing from now on.
  void Stop();
  // Completes the session's own description of its next message, which is
  // ready, with what its turn waits for. Returns nothing when the session is in
  // service by now, or lacks credit.
  std::optional<v1::MessageWait> DescribeWait(uint64_t key,
                                              v1::MessageWait wait,
                                              absl::Duration now) const;
  // Returns the turn that preempts the session's at this moment, if any.
  std::optional<v1::RunPreemption> PreemptorOf(uint64_t key,
                                               absl::Duration now) const;
  // Returns, by tenant label, how long the session that waits longest has
  // waited.
  std::map<std::string, absl::Duration> OldestWaits(TenantLabels* labels) const;

  // --- The executor thread.

  // Takes the next turn, after its batching window if it has one. With `wait`,
  // waits for a turn and returns nothing when the queue stopped; without, also
  // returns nothing when no turn is ready.
  std::optional<Turn> TakeTurn(bool wait);
  // Decides as FairQueue::MayPreempt() for what the parts of a step have used
  // so far. Takes the turn that preempts them into `turn`; EndPreempting() ends
  // it.
  scheduler::FairQueue::Preemption TakePreempting(
      absl::Span<const Preemption::Part> parts, absl::Duration end, Turn* turn);
  void EndPreempting();
  // Ends a turn of the session, which used this much time. With `more`, the
  // session has more work and waits again.
  void EndTurn(const Turn& turn, absl::Duration used, bool more);
  // Ends a turn that executed nothing.
  void EndUnused(const Turn& turn);
  // Returns whether a session of this tenant may share a batch with any other
  // session.
  bool MayBatch(const std::string& tenant) const;
  // Returns sessions that wait with runs that may join the leader's turn. Sets
  // `contested` as FairQueue::Batch does.
  std::vector<Candidate> FindBatch(const Turn& leader, bool* contested) const;
  // Adds all turns but the first one to the first one, which is the leader's.
  // Their runs begin at `places`.
  void JoinBatch(absl::Span<Turn> turns, absl::Span<const Place> places,
                 bool contested, absl::Duration now);
  // Notes how long a batch that began at the place took for what its runs
  // shared.
  void NoteBatch(Place place, absl::Duration took);

 private:
  struct Member {
    std::shared_ptr<Session> session;
    std::shared_ptr<LeaseMeter> meter;
    // The stream that serves the session, or served it last.
    std::weak_ptr<WorkerStream> stream;
    // When it began to wait for its turn; infinite when it does not wait.
    absl::Duration waits_since = absl::InfiniteDuration();
    // When that turn was then expected to begin, where that is known.
    std::optional<absl::Duration> expected_start;
  };
  // A turn that preempts the turn before it in preempting_, or the turn in
  // service.
  struct Preempting {
    uint64_t key = 0;
    absl::Duration since;
    // Never freed.
    const char* reason = "";
  };

  // Waits until a session is runnable or the queue stops. If one session alone
  // has been at work, receives from its stream meanwhile.
  void AwaitRunnable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits while it pays to wait for other sessions' runs to join the next turn.
  void AwaitBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns when the batching window ends; `now` or earlier means that there is
  // none. The device has been ready since `since`.
  absl::Duration BatchUntil(absl::Duration since, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // If the session waits with a run that will miss its deadline, returns the
  // least work that is ahead of the run.
  std::optional<absl::Duration> LateBehind(uint64_t key,
                                           absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<scheduler::InService> InService() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that the session has begun to wait, and that its run is to be refused
  // if it will miss its deadline.
  void NoteWaiting(uint64_t key, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Turn> TakeRefusal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Enters the gate, and releases the lock while it waits. Returns false, with
  // the gate left again, when no turn is ready any more.
  bool EnterGate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LeaveGate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the turn of a session that was just taken into service.
  Turn TurnOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the turn: the device serves its tenant from `now` on.
  Turn Give(Turn turn, absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !queue_.empty();
  }

  const Options options_;
  Clock& clock_;
  Preemption& preemption_;
  TimeAccount& time_;
  ServedTime& served_;
  ExecutorMetrics& metrics_;

  mutable Mutex mu_;
  CondVar runnable_;
  scheduler::FairQueue queue_ ABSL_GUARDED_BY(mu_);
  // The sessions, by the queue's keys.
  absl::flat_hash_map<uint64_t, Member> members_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Whether the executor thread has entered the gate, or yielded, and not left.
  bool in_gate_ ABSL_GUARDED_BY(mu_) = false;
  IdleReceiver idle_ ABSL_GUARDED_BY(mu_);
  // The session in service, and when its turn is expected to end.
  uint64_t serving_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration served_by_ ABSL_GUARDED_BY(mu_);
  // The preempting turns, innermost last.
  std::vector<Preempting> preempting_ ABSL_GUARDED_BY(mu_);
  // When the batching window of the next turn began; unset outside a window.
  std::optional<absl::Duration> batching_since_ ABSL_GUARDED_BY(mu_);
  // Sessions whose runs are to be refused, in order of arrival.
  std::deque<uint64_t> refusals_ ABSL_GUARDED_BY(mu_);
  // Predicts which sessions come to which batch, by the queue's keys.
  scheduler::BatchForecast forecast_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> batching_tenants_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_TURN_QUEUE_H_
