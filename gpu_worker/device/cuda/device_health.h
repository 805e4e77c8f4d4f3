// Remembers whether this process can still use a device. Some errors, such as
// an assertion in a kernel, make a GPU useless to the whole process: from then
// on every call fails with the same status, and the worker must be restarted.
#ifndef GPU_WORKER_DEVICE_CUDA_DEVICE_HEALTH_H_
#define GPU_WORKER_DEVICE_CUDA_DEVICE_HEALTH_H_

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/accelerator.h"

namespace djinn::worker {

// Thread-safe.
class DeviceHealth {
 public:
  // `accelerator` outlives this.
  explicit DeviceHealth(Accelerator* accelerator)
      : accelerator_(*accelerator) {}

  // Returns OK until a fatal error, and from then on always the first fatal
  // error. Cheap while the device works.
  absl::Status status() const {
    if (!broken_.load(std::memory_order_acquire)) return absl::OkStatus();
    MutexLock lock(&mu_);
    return why_;
  }

  // Takes the status of a call and returns it. After an error, asks the
  // accelerator for its health. If the accelerator cannot be used any more,
  // returns the health instead, which says more than the call's error.
  absl::Status Note(absl::Status status) {
    if (status.ok()) return status;
    absl::Status health = accelerator_.Health();
    if (health.ok()) return status;
    MutexLock lock(&mu_);
    if (why_.ok()) why_ = std::move(health);
    broken_.store(true, std::memory_order_release);
    return why_;
  }

 private:
  Accelerator& accelerator_;
  std::atomic<bool> broken_{false};
  mutable Mutex mu_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_DEVICE_HEALTH_H_
