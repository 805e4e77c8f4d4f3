// Lets a run yield between two of its nodes to a run of higher priority. The
// yielding run keeps its state meanwhile: nothing is lost or repeated.
#ifndef GPU_WORKER_PLAN_NODE_EDGE_H_
#define GPU_WORKER_PLAN_NODE_EDGE_H_

#include <atomic>

#include "absl/time/time.h"

namespace djinn::worker {

class NodeEdge {
 public:
  virtual ~NodeEdge() = default;

  // Returns whether Yield() may be of any use. Any thread may call it.
  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }

  // Executes the preempting work and returns when it is done. The executing
  // thread calls it. `expected` is the run's usual time.
  virtual void Yield(absl::Duration expected) = 0;
  // Returns the worker's time without the time spent in Yield(). It only grows.
  virtual absl::Duration OwnTime() const = 0;

  // Returns whether the work being executed preempts a run that yielded and
  // still holds its memory.
  virtual bool GoesFirst() const = 0;
  // Puts the preempting work off because it lacks the memory that the yielded
  // run holds. Nothing preempts that run any more.
  virtual void PutOff() = 0;

 protected:
  std::atomic<bool> wanted_{false};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_NODE_EDGE_H_
