// Gives sessions their turns on the device: one thread takes the next turn from
// the queue, executes the session's messages, alone or in a batch with other
// sessions', lets more urgent turns preempt it between two nodes, and charges
// everyone what they used.
//
// Sessions are added to queue(); the executor holds no lock while it executes.
#ifndef GPU_WORKER_EXECUTOR_EXECUTOR_H_
#define GPU_WORKER_EXECUTOR_EXECUTOR_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/metrics/exposition.h"
#include "common/metrics/tenant_labels.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/executor/executor_metrics.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/executor/time_account.h"
#include "gpu_worker/executor/turn_queue.h"
#include "gpu_worker/plan/lockstep.h"
#include "gpu_worker/session/observe/served_time.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {

class Executor {
 public:
  // All pointers outlive the executor. Calls `changed`, without locks, when the
  // coordinator should hear of a lease's credit.
  Executor(const TurnQueue::Options& options, Device* device,
           const Ledger* ledger, Clock* clock, TenantLabels* labels,
           std::function<void()> changed);
  // As Stop().
  ~Executor() { Stop(); }

  // Starts the thread. Without it the caller gives the turns by ServeReady().
  void Start();
  // Ends the thread after the turn in service. Idempotent.
  void Stop();
  // Serves every turn that is ready, in the caller's thread; returns whether
  // there was one.
  bool ServeReady();

  TurnQueue& queue() { return queue_; }
  const TurnQueue& queue() const { return queue_; }
  // Between two nodes of a run others may preempt it.
  NodeEdge* edge() { return &preemption_; }
  const ServedTime* served() const { return &served_; }
  // Device time by phase.
  PhaseTimes busy() const { return metrics_.busy.Read(); }
  // How long the executor thread has been at work. At least busy() read before.
  absl::Duration worked() const { return time_.WorkedBy(clock_.Monotonic()); }

  void Collect(Exposition* out) const;

 private:
  void Run();
  void Serve(Turn turn);
  // The session lacks credit: waits for more.
  void ServeUnpaid(const Turn& turn);
  // Refuses the session's run, which would miss its deadline.
  void ServeRefusal(const Turn& turn, Preemption::Step* step);
  // Executes the session's next messages until the turn has been long enough.
  void ServeAlone(const Turn& turn, const Preemption::Step& step);
  // Executes the leader's run in a batch with others', if there are any. False,
  // and nothing happened but Frees, when it could not share a batch.
  bool ServeBatch(const Turn& leader, Preemption::Step* step);
  // The batch's runs, which have begun. Members are in the order of the turns.
  struct Batch {
    std::vector<Turn> turns;
    std::vector<LockstepMember> members;
    // Some session that waits is not in it.
    bool contested = false;
  };
  // Begins the leader's run, and those that fit; nobody's if the leader's does
  // not suit a batch.
  Batch BeginBatch(const Turn& leader,
                   const std::vector<TurnQueue::Candidate>& candidates,
                   bool contested, const Preemption::Step& step);
  void ExecuteBatch(Batch* batch, TurnQueue::Place place);
  // As TurnQueue::TakePreempting(); serves the turn that was taken, and returns
  // whose it was.
  scheduler::FairQueue::Preemption TakePreempting(const Preemption::Step& step,
                                                  absl::Duration used,
                                                  absl::Duration end);
  Preemptor ServePreempting();
  void Charge(const Turn& turn, v1::Phase phase, absl::Duration used);
  // What the session used in its turn, which is over, is charged.
  void EndTurn(const Turn& turn, absl::Duration used);
  void EndService(const Turn& turn, absl::Duration now);

  const TurnQueue::Options options_;
  Device& device_;
  const Ledger& ledger_;
  Clock& clock_;
  const std::function<void()> changed_;
  ExecutorMetrics metrics_;
  ServedTime served_;
  Preemption preemption_;
  TimeAccount time_;
  TurnQueue queue_;
  // Taken, and about to be served.
  Turn preempting_;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_EXECUTOR_H_
