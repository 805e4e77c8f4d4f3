// Which buffers are still the copy-in stream's: those made for an upload, until
// an operator is to use them. Only then does the compute stream wait for their
// bytes, and for no others', so that an upload goes on beside all other work.
//
// Thread-safe; what is said of one buffer at the same time is not about its
// use.
#ifndef GPU_WORKER_DEVICE_CUDA_UPLOAD_ORDER_H_
#define GPU_WORKER_DEVICE_CUDA_UPLOAD_ORDER_H_

#include <atomic>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// What calls the accelerator may throw c10::Error.
class UploadOrder {
 public:
  // `accelerator` outlives this.
  explicit UploadOrder(Accelerator* accelerator) : accelerator_(*accelerator) {}

  // The buffer's memory was allocated on the copy-in stream.
  void Add(const TorchBuffer& buffer);
  // The copy-in stream was asked to write to it.
  void Wrote(const TorchBuffer& buffer);
  // Behind which its bytes are there; null once it is the compute stream's.
  EventPtr EventOf(const TorchBuffer& buffer) const;
  // The compute stream is about to use it.
  void Join(const TorchBuffer& buffer) {
    if (count_.load(std::memory_order_acquire) > 0) JoinNow(buffer);
  }
  // It is gone. Throws nothing.
  void Forget(const TorchBuffer& buffer);

  // Buffers that are the copy-in stream's.
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
