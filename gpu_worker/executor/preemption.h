// Lets runs yield to more urgent ones between two nodes.
//
// Turns nest: the run that yields stays where it is on the executor's stack,
// with its storages and temporaries, until the turns that go first are over.
// What it is charged is its own time alone. How often and for how long it gives
// way is the scheduler's rule: every run ends.
//
// Turns follow each other without a gap: each begins when the one before it was
// settled, or the thread woke up, and one that goes first when the other gave
// way. So nothing that the thread does between two turns is nobody's.
//
// One executor thread, but for Look().
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

  // What a session has used of a turn.
  struct Part {
    uint64_t key = 0;
    absl::Duration used;
  };
  // A turn that may yield.
  struct Step {
    uint64_t key = 0;
    const std::string* tenant = nullptr;
    // Of all who share it; null while one session has it alone.
    std::function<std::vector<Part>()> parts;
    // Where it is noted that it yielded.
    Yielded* yielded = nullptr;
    // And to be told; may be null. `reason` lives for ever.
    std::function<void(const Preemptor& first, const char* reason,
                       absl::Duration away)>
        yielded_for;
    // By OwnTime(): when what went before it was settled.
    absl::Duration start;
    Rule rule;
    Step* outer = nullptr;
  };

  struct Calls {
    // As FairQueue::MayPreempt(); whoever goes first is taken into service.
    std::function<scheduler::FairQueue::Preemption(
        const Step& step, absl::Duration used, absl::Duration end)>
        take;
    // Carries out the turn of whoever was taken; returns who that was.
    std::function<Preemptor()> serve;
  };

  // `clock` and `labels` outlive it.
  Preemption(Clock* clock, TenantLabels* labels, Calls calls)
      : clock_(clock), labels_(labels), calls_(std::move(calls)) {}

  // Somebody has begun to wait. Any thread.
  void Look() {
    fresh_.store(true, std::memory_order_relaxed);
    wanted_.store(true, std::memory_order_relaxed);
  }

  // A turn begins, inside the one before if there is one, and ends.
  void Begin(Step* step);
  void End(Step* step);
  // What was done until then, by OwnTime(), is accounted for. How long that is
  // since the last time.
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

  void Collect(Exposition* out) const;

  // As operators see it; of a reason that yields.
  static const char* NameOf(scheduler::FairQueue::Preemption reason);

 private:
  Clock* const clock_;
  TenantLabels* const labels_;
  const Calls calls_;
  std::atomic<bool> fresh_{false};
  Step* step_ = nullptr;
  // In turns that went before others, all together.
  absl::Duration away_;
  // By OwnTime().
  absl::Duration settled_;
  absl::Duration next_look_;
  LabelledCounter count_{"djinn_preemptions_total",
                         "Turns that yielded between two nodes.",
                         {"preemptor_tenant", "victim_tenant", "reason"}};
  DurationHistogram durations_{absl::Milliseconds(1)};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_PREEMPTION_H_
