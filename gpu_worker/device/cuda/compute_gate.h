// Keeps threads from asking the compute stream anything while another one
// records it: what they asked would become part of the graph.
#ifndef GPU_WORKER_DEVICE_CUDA_COMPUTE_GATE_H_
#define GPU_WORKER_DEVICE_CUDA_COMPUTE_GATE_H_

#include <atomic>
#include <thread>

#include "common/mutex.h"

namespace djinn::worker {

class ComputeGate {
 public:
  // For the length of one call to the stream. Of the recording thread, whose
  // calls are what is recorded, nothing is asked.
  class Pass {
   public:
    explicit Pass(ComputeGate* gate) ABSL_NO_THREAD_SAFETY_ANALYSIS
        : gate_(gate->recorder_.load(std::memory_order_acquire) ==
                        std::this_thread::get_id()
                    ? nullptr
                    : gate) {
      if (gate_ != nullptr) gate_->mu_.Lock();
    }
    ~Pass() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (gate_ != nullptr) gate_->mu_.Unlock();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    ComputeGate* const gate_;
  };

  // While this thread records.
  class Hold {
   public:
    explicit Hold(ComputeGate* gate) ABSL_NO_THREAD_SAFETY_ANALYSIS
        : gate_(*gate) {
      gate_.mu_.Lock();
      gate_.recorder_.store(std::this_thread::get_id(),
                            std::memory_order_release);
    }
    ~Hold() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      gate_.recorder_.store(std::thread::id(), std::memory_order_release);
      gate_.mu_.Unlock();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    ComputeGate& gate_;
  };

 private:
  Mutex mu_;
  std::atomic<std::thread::id> recorder_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_COMPUTE_GATE_H_
