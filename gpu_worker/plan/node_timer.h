// Records the times of a run's nodes, for a profile.
//
// Not thread-safe.
#ifndef GPU_WORKER_PLAN_NODE_TIMER_H_
#define GPU_WORKER_PLAN_NODE_TIMER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

struct NodeTime {
  uint32_t node = 0;
  absl::Duration began;
  absl::Duration ended;
  ExecutionPath way = ExecutionPath::kPlain;
  // The node failed, or was skipped because it reads a failed node's result.
  bool failed = false;
};

class NodeTimer {
 public:
  // Keeps at most `room` times and counts the rest. `clock` outlives this.
  NodeTimer(Clock* clock, size_t room) : clock_(clock), room_(room) {}

  absl::Duration Now() const { return clock_->Monotonic(); }
  void Add(const NodeTime& time) {
    if (times_.size() < room_) {
      times_.push_back(time);
    } else {
      ++dropped_;
    }
  }

  const std::vector<NodeTime>& times() const { return times_; }
  uint64_t dropped() const { return dropped_; }

 private:
  Clock* const clock_;
  const size_t room_;
  std::vector<NodeTime> times_;
  uint64_t dropped_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_NODE_TIMER_H_
