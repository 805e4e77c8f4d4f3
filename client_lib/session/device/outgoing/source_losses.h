// Tells the devices of a session that one of them lost its worker, got another
// one, or found that its values diverge: the others may have copies from it
// (client_lib/session/transfer/kept_copy.h).
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_SOURCE_LOSSES_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_SOURCE_LOSSES_H_

#include <atomic>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "client_lib/session/model/wait.h"
#include "common/base/mutex.h"

namespace djinn {

class SourceLosses {
 public:
  // Wakes `device` at each news until Remove().
  void Add(Wakeup* device) {
    MutexLock lock(&mu_);
    devices_.insert(device);
  }
  void Remove(Wakeup* device) {
    MutexLock lock(&mu_);
    devices_.erase(device);
  }

  // Any thread may call it, without locks of devices.
  void Tell() {
    MutexLock lock(&mu_);
    news_.fetch_add(1, std::memory_order_release);
    told_.SignalAll();
    for (Wakeup* const device : devices_) device->Set();
  }
  // Returns how often Tell() was called.
  uint64_t news() const { return news_.load(std::memory_order_acquire); }
  // Waits until Tell() was called more than `seen` times, at most until the
  // deadline.
  void Await(uint64_t seen, const Deadline& deadline) {
    MutexLock lock(&mu_);
    while (news() <= seen && !deadline.passed()) {
      WaitUntil(&told_, &mu_, deadline);
    }
  }

 private:
  Mutex mu_;
  CondVar told_;
  std::atomic<uint64_t> news_{0};
  absl::flat_hash_set<Wakeup*> devices_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_SOURCE_LOSSES_H_
