// Decides when an executor is paused, because outside of its turns it takes the
// processors away from the executor whose turn it is.
//
// A turn may use all processors. What an executor's threads use besides is
// limited while another executor computes or waits to: on average to an equal
// part of the processors, after an allowance of kAllowance of all of them. The
// executor is then stopped until its part has made up for it, for kLongestPause
// at most. A tenant that took its executor over can thus spin with any number
// of threads and has no more than its part of the time that others compute.
//
// An honest executor receives, hashes, copies and plans outside of its turns.
// It is never ended for that, and nothing of it fails: one that does so with
// more than its part of the processors, for long, while others compute, does
// it at the pace of its part. Alone, it is never paused.
//
// A value; not thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_PROCESSOR_SHARE_H_
#define GPU_WORKER_SUPERVISOR_PROCESSOR_SHARE_H_

#include <cstddef>

#include "absl/time/time.h"

namespace djinn::worker {

class ProcessorShare {
 public:
  static constexpr absl::Duration kAllowance = absl::Seconds(5);
  static constexpr absl::Duration kLongestPause = absl::Seconds(1);

  // What happened in a round.
  struct Round {
    absl::Duration passed;
    // Processor time that the executor used, and time for which it held the
    // device.
    absl::Duration cpu;
    absl::Duration held;
    // Whether another executor used the device or waited for it.
    bool others_compute = false;
    // Processors, and executors that share them.
    double processors = 1;
    size_t sharers = 1;
  };

  // Returns whether the executor is to be paused until the next round.
  bool Note(const Round& round);

 private:
  // Processor time beyond its part and its allowance; negative while it has
  // some of the allowance left.
  absl::Duration owed_ = -absl::InfiniteDuration();
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_PROCESSOR_SHARE_H_
