// Gives sessions their turns on the device. One thread takes the next turn from
// the queue and executes the session's messages, alone or in a batch with other
// sessions'. It lets turns of higher priority preempt between two nodes, and
// charges each session what it used.
//
// Sessions are added to queue(); the executor holds no lock while it executes.
#ifndef GPU_WORKER_EXECUTOR_EXECUTOR_H_
#define GPU_WORKER_EXECUTOR_EXECUTOR_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
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
  // All pointers must outlive the executor. It calls `changed`, without locks,
  // when a lease's credit changed in a way that the coordinator should learn.
  Executor(const TurnQueue::Options& options, Device* device,
           const Ledger* ledger, Clock* clock, TenantLabels* labels,
           std::function<void()> changed);
  // Calls Stop().
  ~Executor() { Stop(); }

  // Starts the thread. Without it the caller serves the turns with
  // ServeReady().
  void Start();
  // Ends the thread after the turn in service. Idempotent.
  void Stop();
  // Serves every turn that is ready, in the caller's thread; returns whether
  // there was one.
  bool ServeReady();

  TurnQueue& queue() { return queue_; }
  const TurnQueue& queue() const { return queue_; }
  // Returns the hook that lets other runs preempt a run between two nodes.
  NodeEdge* edge() { return &preemption_; }
  const ServedTime* served() const { return &served_; }
  // Returns device time by phase.
  PhaseTimes busy() const { return metrics_.busy.Read(); }
  // Returns how long the executor thread has worked. Never less than a busy()
  // that was read before.
  absl::Duration worked() const { return time_.WorkedBy(clock_.Monotonic()); }

  // Returns Preemption::Mark(), and has it change at the next node.
  uint64_t MarkProgress() {
    const uint64_t mark = preemption_.Mark();
    if (mark != 0) preemption_.NoteArrival();
    return mark;
  }

  void Collect(Exposition* out) const;

 private:
  void Run();
  void Serve(Turn turn);
  // Tells the gate, if there is one, whose messages are executed. The leases'
  // meters must exist until the next call.
  using Served = absl::InlinedVector<absl::string_view, 1>;
  void NoteServed(const Served& lease_ids);
  // Ends the turn of a session that lacks credit and waits for more.
  void ServeUnpaid(const Turn& turn);
  // Refuses the session's run, which would miss its deadline.
  void ServeRefusal(const Turn& turn, Preemption::Step* step);
  // Executes the session's next messages until the turn has been long enough.
  void ServeAlone(const Turn& turn, const Preemption::Step& step);
  // Executes the leader's run in a batch with others', if there are any.
  // Returns false when the leader's run cannot share a batch; then at most some
  // Frees were executed.
  bool ServeBatch(const Turn& leader, Preemption::Step* step);
  // The batch's runs, which have begun. Members are in the order of the turns.
  struct Batch {
    std::vector<Turn> turns;
    std::vector<LockstepMember> members;
    // True when some session waits that is not in the batch.
    bool contested = false;
  };
  // Begins the leader's run, and the runs that fit. Returns an empty batch if
  // the leader's run does not suit one.
  Batch BeginBatch(const Turn& leader,
                   const std::vector<TurnQueue::Candidate>& candidates,
                   bool contested, const Preemption::Step& step);
  void ExecuteBatch(Batch* batch, TurnQueue::Place place);
  // TakePreempting() does as TurnQueue::TakePreempting() and keeps the turn;
  // ServePreempting() serves that turn and returns whose it was.
  scheduler::FairQueue::Preemption TakePreempting(const Preemption::Step& step,
                                                  absl::Duration used,
                                                  absl::Duration end);
  Preemptor ServePreempting();
  void Charge(const Turn& turn, v1::Phase phase, absl::Duration used);
  // Ends the session's turn, in which it used this much time.
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
  // The leases that the last NoteServed() named.
  Served served_leases_;
  // The turn that TakePreempting() took and ServePreempting() serves.
  Turn preempting_;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_EXECUTOR_H_
