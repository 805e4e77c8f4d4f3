// Counts the time that one thread spends in each of a few stages. Other threads
// may read the times at any moment, also while a stage is in progress: the
// difference between two readings is exactly the time spent between them.
//
// Thread-safe; one thread enters and leaves stages. Times are of the clock that
// the caller reads, and must not fall.
#ifndef COMMON_BASE_STAGE_TIMES_H_
#define COMMON_BASE_STAGE_TIMES_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn {

template <size_t kStages>
class StageTimes {
 public:
  using Reading = std::array<absl::Duration, kStages>;

  // Puts the thread into `stage` from `now` on, and into no other.
  void Enter(size_t stage, absl::Duration now) {
    MutexLock lock(&mu_);
    End(now);
    current_ = stage;
    since_ = now;
  }
  // Ends the thread's current stage; it is in none afterwards.
  void Leave(absl::Duration now) {
    MutexLock lock(&mu_);
    End(now);
    current_ = kStages;
  }

  // Returns the total time of each stage until `now`.
  Reading At(absl::Duration now) const {
    MutexLock lock(&mu_);
    Reading reading = ended_;
    if (current_ < kStages) {
      reading[current_] += std::max(now - since_, absl::ZeroDuration());
    }
    return reading;
  }

 private:
  void End(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (current_ < kStages) ended_[current_] += now - since_;
  }

  mutable Mutex mu_;
  Reading ended_ ABSL_GUARDED_BY(mu_) = {};
  size_t current_ ABSL_GUARDED_BY(mu_) = kStages;
  absl::Duration since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // COMMON_BASE_STAGE_TIMES_H_
