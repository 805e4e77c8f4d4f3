// Records when a message arrived, before it was decoded, for receivers that
// measure.
//
// A stream calls Note() in the thread that is about to decode. The receiver
// calls Take() in its callback, in the same thread. While no receiver measures,
// Note() costs a load and a branch. Thread-safe.
#ifndef COMMON_TRANSPORT_ARRIVAL_H_
#define COMMON_TRANSPORT_ARRIVAL_H_

#include <atomic>
#include <optional>

#include "absl/base/optimization.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace djinn {

class Arrival {
 public:
  // While an Interest exists in this process, Note() records times.
  class Interest {
   public:
    Interest() { measuring_.fetch_add(1, std::memory_order_relaxed); }
    ~Interest() { measuring_.fetch_sub(1, std::memory_order_relaxed); }
    Interest(const Interest&) = delete;
    Interest& operator=(const Interest&) = delete;
  };

  static void Note() {
    if (ABSL_PREDICT_TRUE(measuring_.load(std::memory_order_relaxed) == 0)) {
      return;
    }
    last_ = Clock::Real()->Monotonic();
  }

  // Returns the time noted for the message that is being delivered, once. Empty
  // for a stream that decodes within gRPC, and for any clock but the real one.
  static std::optional<absl::Duration> Take(const Clock* clock) {
    const std::optional<absl::Duration> noted = last_;
    last_.reset();
    return clock == Clock::Real() ? noted : std::nullopt;
  }

 private:
  static inline std::atomic<int> measuring_ = 0;
  static inline thread_local std::optional<absl::Duration> last_;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_ARRIVAL_H_
