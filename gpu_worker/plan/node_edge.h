// Lets a run yield between two of its nodes to a run of higher priority. The
// run stays as it is meanwhile; nothing is lost or done again.
#ifndef GPU_WORKER_PLAN_NODE_EDGE_H_
#define GPU_WORKER_PLAN_NODE_EDGE_H_

#include <atomic>

#include "absl/time/time.h"

namespace djinn::worker {

class NodeEdge {
 public:
  virtual ~NodeEdge() = default;

  // Whether Yield() may be of any use. Any thread.
  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }

  // Called in the executing thread; returns when the preempting work is done.
  // `expected` is the run's usual time.
  virtual void Yield(absl::Duration expected) = 0;
  // The worker's time without what it spent in Yield(): only grows.
  virtual absl::Duration OwnTime() const = 0;

  // Whether what is done now goes first of a run that yielded, and goes on
  // holding its memory.
  virtual bool GoesFirst() const = 0;
  // For lack of that memory it waits after all. Nobody goes first of that run
  // any more.
  virtual void PutOff() = 0;

 protected:
  std::atomic<bool> wanted_{false};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_NODE_EDGE_H_
