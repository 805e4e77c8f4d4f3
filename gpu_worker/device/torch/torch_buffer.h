// Buffers that are PyTorch storages, so that operators' results become buffers
// without a copy, and windows onto them as tensors.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Storage.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// What was made from a buffer's bytes, such as packed weights. Belongs to the
// buffer.
class DerivedFromBytes {
 public:
  virtual ~DerivedFromBytes() = default;
  // The bytes are about to change; called by the buffer's lone holder.
  virtual void Invalidate() = 0;
};

// Thread-safe as far as Buffer is: bytes are written by a lone holder only, who
// says so first.
class TorchBuffer final : public Buffer {
 public:
  // Fixes the storage's size: an operator that would resize it throws. No other
  // buffer is made from the storage.
  explicit TorchBuffer(c10::Storage storage);
  ~TorchBuffer() override;

  uint64_t size_bytes() const override { return storage_.nbytes(); }

  const c10::Storage& storage() const { return storage_; }
  // Null for a buffer without bytes.
  char* data() const { return data_; }

  // Before every write of the bytes, whoever makes it.
  void WillBeWritten() const {
    if (DerivedFromBytes* const derived = this->derived()) {
      derived->Invalidate();
    }
  }

  // Null when there is nothing yet. Stays as long as the buffer.
  DerivedFromBytes* derived() const {
    return derived_.load(std::memory_order_acquire);
  }
  // Sets it, unless another thread came first; returns what is there.
  DerivedFromBytes* SetDerived(std::unique_ptr<DerivedFromBytes> derived) const;

 private:
  c10::Storage storage_;
  char* data_;
  // Owned.
  mutable std::atomic<DerivedFromBytes*> derived_{nullptr};
};

// Zero-filled memory of this machine; throws c10::Error when there is none.
c10::Storage ZeroedStorage(uint64_t bytes);
// The same with whatever it held before: the caller writes all of it.
c10::Storage UninitialisedStorage(uint64_t bytes);

// What cannot be known about a view without PyTorch's rules: its element type
// exists here, and only complex or floating-point elements read conjugated or
// negated. InvalidArgument (INVALID_VIEW).
absl::Status CheckViewOfTorch(const srg::TensorView& view);

// A plain tensor over the storage, which is on a CPU or a GPU. The view passed
// CheckViewOfTorch() and lies inside the storage. Under c10::InferenceMode.
at::Tensor MakeTensor(const srg::TensorView& view, const c10::Storage& storage);

// The tensor's metadata; slot is 0. False if its element type is not known.
bool DescribeTensor(const at::Tensor& tensor, srg::TensorView* view);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_
