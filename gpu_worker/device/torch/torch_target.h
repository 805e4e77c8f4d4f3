// Describes where PyTorch's operators run for a worker: the device of plain
// tensors, and how a generator's state, which a session keeps in a buffer, gets
// into one of PyTorch's generators and back.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_TARGET_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_TARGET_H_

#include <cstdint>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/Storage.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// All functions may throw c10::Error.
class TorchTarget {
 public:
  explicit TorchTarget(c10::Device device) : device_(device) {}
  virtual ~TorchTarget() = default;

  c10::Device device() const { return device_; }

  // Returns zero-filled memory of the device.
  virtual c10::Storage Zeroed(uint64_t bytes) const = 0;
  // Fills the storage, which is not empty, with zeros.
  virtual void FillWithZeros(const c10::Storage& storage) const = 0;

  // Returns this thread's own generator of the device. Creating one seeds it,
  // which costs more than setting its state, so threads keep theirs.
  virtual const at::Generator& ThreadGenerator() const = 0;
  // Returns the generator from which operators draw implicitly.
  virtual at::Generator DefaultGenerator() const = 0;
  // Returns the bytes of a generator's buffer in the form that generators of
  // the device take.
  virtual at::Tensor ReadState(const TorchBuffer& buffer) const = 0;
  // Writes `state`, which has the buffer's size, to the buffer.
  virtual void WriteState(const TorchBuffer& buffer,
                          const at::Tensor& state) const = 0;

 private:
  const c10::Device device_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_TARGET_H_
