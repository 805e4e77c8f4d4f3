// A device that works behind streams as what PyTorch's operators run on.
#ifndef GPU_WORKER_DEVICE_CUDA_STREAM_TARGET_H_
#define GPU_WORKER_DEVICE_CUDA_STREAM_TARGET_H_

#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/transfers.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Generators' states have room in the device's memory, as all that a session
// has, but are kept on the host, where PyTorch's generators are: a draw waits
// for nothing but the first time after the state came from elsewhere, and the
// device gets the state when something there reads it.
class StreamTarget final : public TorchTarget {
 public:
  // Both outlive this.
  StreamTarget(Accelerator* accelerator, Transfers* transfers)
      : TorchTarget(accelerator->device()),
        accelerator_(*accelerator),
        transfers_(*transfers) {}

  c10::Storage Zeroed(uint64_t bytes) const override;
  void FillWithZeros(const c10::Storage& storage) const override;
  const at::Generator& ThreadGenerator() const override {
    return accelerator_.ThreadGenerator();
  }
  at::Generator DefaultGenerator() const override {
    return accelerator_.DefaultGenerator();
  }
  at::Tensor ReadState(const TorchBuffer& buffer) const override;
  void WriteState(const TorchBuffer& buffer,
                  const at::Tensor& state) const override;

 private:
  Accelerator& accelerator_;
  Transfers& transfers_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STREAM_TARGET_H_
