// Facts about a session's next message, which the queue for the device and
// operators read at any moment. The message flow writes it under its lock. Each
// field is an atomic by itself.
#ifndef GPU_WORKER_SESSION_STATE_NEXT_MESSAGE_H_
#define GPU_WORKER_SESSION_STATE_NEXT_MESSAGE_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "djinn/v1/notes.pb.h"

namespace djinn::worker {

class NextMessage {
 public:
  // Returns whether the next message, but for a Free, is a run in fast mode.
  bool fast_run() const { return fast_run_.load(std::memory_order_relaxed); }
  // Returns the phase of its run, as of the graph's last run; unspecified when
  // it is another message or the phase is not known.
  v1::Phase phase() const { return phase_.load(std::memory_order_relaxed); }
  // Returns the deadline of the message; infinite when it has none.
  absl::Duration deadline() const {
    const int64_t deadline = deadline_.load(std::memory_order_relaxed);
    return deadline == kNever ? absl::InfiniteDuration()
                              : absl::Nanoseconds(deadline);
  }
  // Returns the least time that the message takes, if it is a run; 0 when that
  // is not known.
  absl::Duration expected() const {
    return absl::Nanoseconds(expected_.load(std::memory_order_relaxed));
  }
  // Returns how many runs were received and are not over.
  uint32_t queued_runs() const { return queued_runs_; }

 private:
  friend class MessageFlow;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  std::atomic<bool> fast_run_{false};
  std::atomic<v1::Phase> phase_{v1::PHASE_UNSPECIFIED};
  std::atomic<int64_t> deadline_{kNever};
  std::atomic<int64_t> expected_{0};
  std::atomic<uint32_t> queued_runs_{0};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_NEXT_MESSAGE_H_
