// Whether one that waits for the peer should look again soon, or go to sleep.
//
// To wake a thread takes some microseconds where its processor is awake, and
// many times that where a virtual machine gave the processor back; and Linux
// puts one that wakes onto the waker's processor rather than onto one that
// sleeps, so that the two ends take turns instead of working side by side. So
// one that had to wait for a short time only, the last time, looks for as long
// before it sleeps, unless others need its processor. (As KVM polls before it
// halts.)
//
// One thread at a time.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SPIN_WAIT_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SPIN_WAIT_H_

#include <optional>

#include "absl/time/time.h"

namespace djinn {

class SpinWait {
 public:
  // A wait that is longer is slept through.
  static constexpr absl::Duration kLongest = absl::Microseconds(400);

  // A wait begins; ends.
  void Begin() { since_.reset(); }
  void End(absl::Duration now) {
    if (since_.has_value()) worth_it_ = now - *since_ <= kLongest;
  }

  // Nothing is there yet, or not all that is waited for. True: Relax(), and
  // look again; false: sleep.
  bool Nothing(absl::Duration now) {
    if (!since_.has_value()) since_ = now;
    return worth_it_ && now - *since_ < kLongest;
  }

  // Lets others run: the sibling of this processor, and threads that wait for
  // it.
  static void Relax();

 private:
  bool worth_it_ = false;
  std::optional<absl::Duration> since_;  // nothing was there
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SPIN_WAIT_H_
