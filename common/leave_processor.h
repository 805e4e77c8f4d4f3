// Moves a thread off the processor it is on, and says when that is due.
#ifndef COMMON_LEAVE_PROCESSOR_H_
#define COMMON_LEAVE_PROCESSOR_H_

#include "absl/time/time.h"

namespace djinn {

// Moves the calling thread to any other that it may use, by narrowing its
// affinity and widening it again; returns when it has its turn there. Without
// effect where there is none. Takes some ten microseconds, more where the other
// processor is busy.
void LeaveProcessor();

// How often a thread leaves: less and less often where that does not help, as
// where there is no other processor. For one thread.
class LeavePace {
 public:
  // `min_pause` is between two moves; doubled, up to the second, by every one
  // that did not help.
  explicit LeavePace(absl::Duration min_pause)
      : min_pause_(min_pause), pause_(min_pause) {}

  // At every look. `crowded`: the thread would rather be elsewhere. True: it
  // should leave.
  bool Note(bool crowded, absl::Duration now);

  static constexpr absl::Duration kMaxPause = absl::Seconds(1);

 private:
  const absl::Duration min_pause_;
  bool moved_ = false;  // at the last look
  absl::Duration pause_;
  absl::Duration not_before_ = -absl::InfiniteDuration();
};

}  // namespace djinn

#endif  // COMMON_LEAVE_PROCESSOR_H_
