// Decides whether a thread that waits for the peer should poll again or sleep.
//
// Waking a thread takes some microseconds if its processor is awake, and many
// times that if a virtual machine gave the processor back. Linux also puts a
// woken thread onto the waker's processor rather than an idle one, so that the
// two ends take turns instead of working in parallel. A thread whose last wait
// was short therefore polls for as long before it sleeps, unless other threads
// need its processor. (KVM polls before it halts for the same reason.)
//
// Used by one thread at a time.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SPIN_WAIT_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SPIN_WAIT_H_

#include <optional>

#include "absl/time/time.h"

namespace djinn {

class SpinWait {
 public:
  // A thread sleeps through longer waits.
  static constexpr absl::Duration kLongest = absl::Microseconds(400);

  // Begin and end a wait.
  void Begin() { since_.reset(); }
  void End(absl::Duration now) {
    if (since_.has_value()) worth_it_ = now - *since_ <= kLongest;
  }

  // Call it when some of what the caller waits for has not come. Returns true
  // if the caller should Relax() and poll again, false if it should sleep.
  bool Nothing(absl::Duration now) {
    if (!since_.has_value()) since_ = now;
    return worth_it_ && now - *since_ < kLongest;
  }

  // Lets others run: the sibling of this processor, and threads that wait for
  // it.
  static void Relax();

 private:
  bool worth_it_ = false;
  std::optional<absl::Duration> since_;  // when nothing was there first
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SPIN_WAIT_H_
