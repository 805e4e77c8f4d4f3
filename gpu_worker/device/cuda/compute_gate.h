// Keeps other threads from enqueuing on the compute stream while one thread
// records it. Otherwise their commands would become part of the recorded graph,
// and their allocations would come from the graph's memory.
#ifndef GPU_WORKER_DEVICE_CUDA_COMPUTE_GATE_H_
#define GPU_WORKER_DEVICE_CUDA_COMPUTE_GATE_H_

#include <cstddef>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"

namespace djinn::worker {

class ComputeGate {
 public:
  // Lets this thread enqueue on the stream while it lives. Threads hold passes
  // concurrently, and one thread may nest passes. The recording thread needs
  // none: its calls are what is recorded. A null gate lets every thread
  // through.
  class Pass {
   public:
    explicit Pass(ComputeGate* gate) : gate_(gate) {
      if (gate_ != nullptr) gate_->Enter();
    }
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    ComputeGate* const gate_;
  };

  // Gives this thread, which holds no pass, the stream alone to record it.
  class Hold {
   public:
    explicit Hold(ComputeGate* gate) : gate_(*gate) { gate_.Close(); }
    ~Hold() { gate_.Open(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    ComputeGate& gate_;
  };

  // Returns the number of threads that wait to enter or to record.
  size_t waiting() const {
    MutexLock lock(&mu_);
    return waiting_;
  }

 private:
  void Enter() {
    const std::thread::id self = std::this_thread::get_id();
    MutexLock lock(&mu_);
    // A thread that already holds a pass enters a closed gate, because the
    // recording thread waits for that pass.
    while (closed_ && recorder_ != self && passes_.count(self) == 0) {
      WaitForChange();
    }
    ++passes_[self];
  }
  void Leave() {
    MutexLock lock(&mu_);
    const auto found = passes_.find(std::this_thread::get_id());
    if (--found->second > 0) return;
    passes_.erase(found);
    if (closed_) changed_.SignalAll();
  }
  void Close() {
    MutexLock lock(&mu_);
    while (closed_) WaitForChange();
    closed_ = true;
    while (!passes_.empty()) WaitForChange();
    recorder_ = std::this_thread::get_id();
  }
  void WaitForChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++waiting_;
    changed_.Wait(&mu_);
    --waiting_;
  }
  void Open() {
    MutexLock lock(&mu_);
    closed_ = false;
    recorder_ = std::thread::id();
    changed_.SignalAll();
  }

  mutable Mutex mu_;
  CondVar changed_;
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  // No other thread may enter. `recorder_` is set once all passes are returned.
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::thread::id recorder_ ABSL_GUARDED_BY(mu_);
  // The number of passes that each thread holds.
  absl::flat_hash_map<std::thread::id, size_t> passes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_COMPUTE_GATE_H_
