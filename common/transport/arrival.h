// When the message that a stream hands to its receiver came, before it was
// decoded, for whoever measures that.
//
// A stream calls Note() in the thread that is to decode; the receiver calls
// Take() in its callback, in the same thread. While nobody measures, Note()
// costs a load and a branch. Thread-safe.
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
  // Somebody in this process measures from here on, as long as it lives.
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

  // What was noted of the message being handed over, once. None from a stream
  // that decodes out of our sight, and none for another clock than the real.
  static std::optional<absl::Duration> Take(const Clock* clock) {
    const std::optional<absl::Duration> noted = last_;
    last_.reset();
    return clock == Clock::Real() ? noted : std::nullopt;
  }

 private:
  static std::atomic<int> measuring_;
  static thread_local std::optional<absl::Duration> last_;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_ARRIVAL_H_
