// How often, and for how long, a turn gives way to more urgent ones; to whom,
// FairQueue::MayPreempt() says. Workers and the simulator go by it alike.
//
// A turn gives way kMost times. Each time others go first until kLongest is
// over, when the one under way is carried to its end; then the turn goes on by
// a node at least before it is asked again. So it ends, whoever comes however
// often: of a turn of n nodes, what goes first begins at n - 1 edges or kMost,
// whichever is less, and within kLongest of each.
#ifndef SCHEDULER_FAIRNESS_PREEMPTION_RULE_H_
#define SCHEDULER_FAIRNESS_PREEMPTION_RULE_H_

#include "absl/time/time.h"

namespace djinn::scheduler {

// Of one turn.
class PreemptionRule {
 public:
  static constexpr int kMost = 64;
  static constexpr absl::Duration kLongest = absl::Seconds(1);
  // How often it is looked whether a turn has had enough by now.
  static constexpr absl::Duration kLookEvery = absl::Milliseconds(1);

  enum class Verdict {
    // To whoever the queue says.
    kMay,
    // Behind its next node.
    kGoesOn,
    // It goes on to its end.
    kNoMore,
  };
  // Whether it gives way, or goes on doing so, having done so for `away`
  // without a node of its own.
  Verdict Ask(absl::Duration away) const {
    if (away >= kLongest) return Verdict::kGoesOn;
    if (cramped_ || times_ >= kMost) return Verdict::kNoMore;
    return Verdict::kMay;
  }
  // It did, and goes on.
  void GaveWay() { ++times_; }
  // Who went first lacked memory that the turn holds.
  void PutOff() { cramped_ = true; }

  int times() const { return times_; }

 private:
  int times_ = 0;
  bool cramped_ = false;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_PREEMPTION_RULE_H_
