// Tracks the buffers that belong to the copy-in stream: those made for an
// upload, until an operator is to use them. The compute stream waits for a
// buffer's bytes only then, and for no other buffer's, so that an upload
// proceeds concurrently with all other work.
//
// Thread-safe, except that calls about one buffer must not race with its use.
#ifndef GPU_WORKER_DEVICE_CUDA_UPLOAD_ORDER_H_
#define GPU_WORKER_DEVICE_CUDA_UPLOAD_ORDER_H_

#include <atomic>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// Functions that call the accelerator may throw c10::Error.
class UploadOrder {
 public:
  // `accelerator` outlives this.
  explicit UploadOrder(Accelerator* accelerator) : accelerator_(*accelerator) {}

  // Notes that the buffer's memory was allocated on the copy-in stream.
  void Add(const TorchBuffer& buffer);
  // Notes that a write to the buffer was enqueued on the copy-in stream.
  void Wrote(const TorchBuffer& buffer);
  // Returns the event after which the buffer's bytes are there; null once the
  // buffer belongs to the compute stream.
  EventPtr EventOf(const TorchBuffer& buffer) const;
  // Gives the buffer to the compute stream, which is about to use it.
  void Join(const TorchBuffer& buffer) {
    if (count_.load(std::memory_order_acquire) > 0) JoinNow(buffer);
  }
  // Forgets a buffer that is being destroyed. Throws nothing.
  void Forget(const TorchBuffer& buffer);

  // Returns the number of buffers that belong to the copy-in stream.
  size_t size() const { return count_.load(std::memory_order_acquire); }

 private:
  void JoinNow(const TorchBuffer& buffer);

  Accelerator& accelerator_;
  std::atomic<size_t> count_{0};
  mutable Mutex mu_;
  absl::flat_hash_map<const TorchBuffer*, EventPtr> events_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_UPLOAD_ORDER_H_
