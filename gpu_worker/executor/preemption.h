// Lets a run yield to runs of higher priority between two nodes.
//
// Turns nest: the run that yields stays where it is on the executor's stack,
// with its storages and temporaries, until the turns that preempt it are over.
// It is charged only for its own time. The scheduler's rule decides how often
// and for how long it yields, so that every run ends.
//
// Turns follow each other without a gap: each begins when the previous one was
// settled, or when the thread woke up; a turn that preempts begins when the
// other one yielded. So every moment that the thread spends between two turns
// is charged to a turn.
//
// Only the executor thread uses it, except for NoteArrival().
#ifndef GPU_WORKER_EXECUTOR_PREEMPTION_H_
#define GPU_WORKER_EXECUTOR_PREEMPTION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "common/metrics/tenant_labels.h"
#include "gpu_worker/leases/yielded.h"
#include "gpu_worker/plan/node_edge.h"
#include "scheduler/fairness/fair_queue.h"
#include "scheduler/fairness/preemption_rule.h"

namespace djinn::worker {

class Preemption final : public NodeEdge {
 public:
  using Rule = scheduler::PreemptionRule;

  // The time that a session has used of a turn.
  struct Part {
    uint64_t key = 0;
    absl::Duration used;
  };
  // A turn that may yield.
  struct Step {
    uint64_t key = 0;
    const std::string* tenant = nullptr;
    // Returns the parts of all sessions that share the turn; null while one
    // session has it alone.
    std::function<std::vector<Part>()> parts;
    // Records that the turn yielded.
    Yielded* yielded = nullptr;
    // Called after the turn yielded; may be null. `reason` is never freed.
    std::function<void(const Preemptor& preemptor, const char* reason,
                       absl::Duration away)>
        yielded_for;
    // The time, by OwnTime(), at which the turn before it was settled.
    absl::Duration start;
    Rule rule;
    Step* outer = nullptr;
  };

  struct Calls {
    // Decides as FairQueue::MayPreempt(), and takes the session that preempts
    // into service.
    std::function<scheduler::FairQueue::Preemption(
        const Step& step, absl::Duration used, absl::Duration end)>
        take;
    // Executes the turn that `take` took; returns whose it was.
    std::function<Preemptor()> serve;
  };

  // `clock` and `labels` must outlive this.
  Preemption(Clock* clock, TenantLabels* labels, Calls calls)
      : clock_(clock), labels_(labels), calls_(std::move(calls)) {}

  // Notes that a session has begun to wait, or that one which waits may preempt
  // now. The run asks the scheduler at its next node. Any thread may call it.
  void NoteArrival() {
    fresh_.store(true, std::memory_order_relaxed);
    wanted_.store(true, std::memory_order_relaxed);
  }

  // Begin() starts a turn, inside the current one if there is one, and End()
  // ends it.
  void Begin(Step* step);
  void End(Step* step);
  // Settles the executor thread's time up to `own_time`, which is a value of
  // OwnTime(). Returns the time since the previous call.
  absl::Duration Settle(absl::Duration own_time) {
    return own_time - std::exchange(settled_, own_time);
  }

  void Yield(absl::Duration expected) override;
  absl::Duration OwnTime() const override {
    return OwnTimeAt(clock_->Monotonic());
  }
  absl::Duration OwnTimeAt(absl::Duration now) const { return now - away_; }
  bool GoesFirst() const override {
    return step_ != nullptr && step_->outer != nullptr;
  }
  void PutOff() override { step_->outer->rule.PutOff(); }

  // Returns 0 outside turns. Inside one, returns a number that changes when the
  // run comes to a node after NoteArrival(), and with the turn. Any thread may
  // call it.
  uint64_t Mark() const {
    return depth_.load(std::memory_order_relaxed) == 0
               ? 0
               : marks_.load(std::memory_order_relaxed);
  }

  void Collect(Exposition* out) const;

  // Returns the reason's name for operators. `reason` must be one that yields.
  static const char* NameOf(scheduler::FairQueue::Preemption reason);

 private:
  Clock* const clock_;
  TenantLabels* const labels_;
  const Calls calls_;
  std::atomic<bool> fresh_{false};
  std::atomic<int> depth_{0};
  std::atomic<uint64_t> marks_{1};
  Step* step_ = nullptr;
  // The time spent in turns that preempted others, in total.
  absl::Duration away_;
  // The time until which all time is settled, by OwnTime().
  absl::Duration settled_;
  absl::Duration next_look_;
  LabelledCounter count_{"djinn_preemptions_total",
                         "Turns that yielded between two nodes.",
                         {"preemptor_tenant", "victim_tenant", "reason"}};
  DurationHistogram durations_{absl::Milliseconds(1)};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_PREEMPTION_H_
