// Buffers that are PyTorch storages, so that operators' results become buffers
// without a copy, and windows onto them as tensors.
#ifndef GPU_WORKER_DEVICE_CPU_TORCH_BUFFER_H_
#define GPU_WORKER_DEVICE_CPU_TORCH_BUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Storage.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Thread-safe as far as Buffer is: bytes are written by a lone holder only.
class TorchBuffer final : public Buffer {
 public:
  // Fixes the storage's size: an operator that would resize it throws.
  explicit TorchBuffer(c10::Storage storage);

  uint64_t size_bytes() const override { return storage_.nbytes(); }

  const c10::Storage& storage() const { return storage_; }
  // Null for a buffer without bytes.
  char* data() const { return data_; }

 private:
  c10::Storage storage_;
  char* data_;
};

// Zero-filled memory; throws c10::Error when there is none.
c10::Storage ZeroedStorage(uint64_t bytes);
// Memory with whatever it held before: the caller writes all of it.
c10::Storage UninitialisedStorage(uint64_t bytes);

// What cannot be known about a view without PyTorch's rules: its element type
// exists here, and only complex or floating-point elements read conjugated or
// negated. InvalidArgument (INVALID_VIEW).
absl::Status CheckViewOfTorch(const srg::TensorView& view);

// A plain tensor over the storage. The view passed CheckViewOfTorch() and lies
// inside the storage. Under c10::InferenceMode.
at::Tensor MakeTensor(const srg::TensorView& view, const c10::Storage& storage);

// The tensor's metadata; slot is 0. False if its element type is not known.
bool DescribeTensor(const at::Tensor& tensor, srg::TensorView* view);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TORCH_BUFFER_H_
