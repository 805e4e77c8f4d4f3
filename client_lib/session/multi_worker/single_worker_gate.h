// Admits calls to the only worker of a virtual device until the device has
// several workers. Close() then waits for the admitted calls to end, and no
// further call is admitted. A call costs two atomic operations.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_SINGLE_WORKER_GATE_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_SINGLE_WORKER_GATE_H_

#include <atomic>
#include <cstdint>

#include "absl/base/optimization.h"
#include "common/base/mutex.h"

namespace djinn {

class SingleWorkerGate {
 public:
  // Enters the gate for one call, if it is open.
  class Pass {
   public:
    explicit Pass(SingleWorkerGate* gate)
        : gate_(gate->Enter() ? gate : nullptr) {}
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    SingleWorkerGate* const gate_;
  };

  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // Closes the gate and returns once no call is inside. The caller holds no
  // Pass.
  void Close() {
    closed_.store(true, std::memory_order_seq_cst);
    MutexLock lock(&mu_);
    while (inside_.load(std::memory_order_seq_cst) > 0) left_.Wait(&mu_);
  }

 private:
  bool Enter() {
    inside_.fetch_add(1, std::memory_order_seq_cst);
    if (ABSL_PREDICT_TRUE(!closed_.load(std::memory_order_seq_cst))) {
      return true;
    }
    Leave();
    return false;
  }
  void Leave() {
    const bool last = inside_.fetch_sub(1, std::memory_order_seq_cst) == 1;
    if (!last || !closed_.load(std::memory_order_seq_cst)) return;
    MutexLock lock(&mu_);
    left_.SignalAll();
  }

  std::atomic<bool> closed_{false};
  std::atomic<int64_t> inside_{0};
  Mutex mu_;
  CondVar left_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_SINGLE_WORKER_GATE_H_
