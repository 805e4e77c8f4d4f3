// Makes a device that works behind streams a target of PyTorch's operators.
#ifndef GPU_WORKER_DEVICE_CUDA_STREAM_TARGET_H_
#define GPU_WORKER_DEVICE_CUDA_STREAM_TARGET_H_

#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/transfers.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// The states of generators take up the device's memory, as everything that a
// session has, but are kept on the host, where PyTorch's generators are. So a
// draw waits for the device only the first time after the state came from
// elsewhere, and the device gets the state when one of its commands reads it.
class StreamTarget final : public TorchTarget {
 public:
  // Both arguments outlive this.
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
