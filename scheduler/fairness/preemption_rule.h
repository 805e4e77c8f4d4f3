// Limits how often and for how long a turn yields. FairQueue::MayPreempt()
// decides to which session it yields. Workers and the simulator use the same
// rule.
//
// A turn yields at most kMost times. Each time, other sessions preempt it until
// kLongest has passed; the preempting step that is then executing runs to its
// end. After that the turn executes at least one node before it is asked again.
// Every turn therefore ends, however many sessions preempt it: a turn of n
// nodes yields at min(n - 1, kMost) edges, for kLongest plus one step at each.
#ifndef SCHEDULER_FAIRNESS_PREEMPTION_RULE_H_
#define SCHEDULER_FAIRNESS_PREEMPTION_RULE_H_

#include "absl/time/time.h"

namespace djinn::scheduler {

// The state of the rule for one turn.
class PreemptionRule {
 public:
  static constexpr int kMost = 64;
  static constexpr absl::Duration kLongest = absl::Seconds(1);
  // Interval at which the executor checks whether a turn should yield.
  static constexpr absl::Duration kLookEvery = absl::Milliseconds(1);

  enum class Verdict {
    // The turn may yield to the session that the queue names.
    kMay,
    // The turn executes its next node first.
    kGoesOn,
    // The turn runs to its end.
    kNoMore,
  };
  // Returns whether the turn may yield now. `away` is how long it has yielded
  // since its last node.
  Verdict Ask(absl::Duration away) const {
    if (away >= kLongest) return Verdict::kGoesOn;
    if (cramped_ || times_ >= kMost) return Verdict::kNoMore;
    return Verdict::kMay;
  }
  // Notes that the turn yielded and now continues.
  void NoteYield() { ++times_; }
  // Notes that the preempting session lacked memory that the turn holds. The
  // turn yields no more.
  void PutOff() { cramped_ = true; }

  int times() const { return times_; }

 private:
  int times_ = 0;
  bool cramped_ = false;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_PREEMPTION_RULE_H_
