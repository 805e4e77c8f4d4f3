// Wraps PyTorch storages in buffers, so that operators' results become buffers
// without a copy, and makes tensors over them.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "c10/core/Storage.h"
#include "c10/util/Exception.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// A value computed from a buffer's bytes, such as packed weights. The buffer
// owns one of each kind at most.
class DerivedFromBytes {
 public:
  // The kinds that one buffer may have beside each other.
  enum Kind { kMain, kPackedObjects, kKinds };

  virtual ~DerivedFromBytes() = default;
  // Drops what depends on the bytes, which are about to change. The buffer's
  // sole holder calls it.
  virtual void Invalidate() = 0;
};

// Marks a buffer whose bytes are unwritten, and holds what they would be
// computed from, for calls that can use that. Other calls cannot read such a
// buffer.
class Unmade {
 public:
  virtual ~Unmade() = default;
};

// Thread-safe as far as Buffer is: only a sole holder writes the bytes, and
// calls WillBeWritten() first.
class TorchBuffer final : public Buffer {
 public:
  // Fixes the storage's size: an operator that would resize it throws. The
  // caller makes no other buffer from the storage.
  explicit TorchBuffer(c10::Storage storage);
  // Makes a buffer of `bytes` unwritten bytes, without memory.
  TorchBuffer(c10::Device device, uint64_t bytes,
              std::shared_ptr<const Unmade> unmade);
  ~TorchBuffer() override;

  uint64_t size_bytes() const override { return size_bytes_; }

  // Throws c10::Error if the bytes are unwritten.
  const c10::Storage& storage() const {
    CheckMade();
    return storage_;
  }
  // Throws as storage(). Returns null for a buffer of no bytes.
  char* data() const {
    CheckMade();
    return data_;
  }
  // Returns whether `impl` is the buffer's memory.
  bool IsOver(const c10::StorageImpl* impl) const {
    return storage_.unsafeGetStorageImpl() == impl;
  }

  // Announces a write. Every writer of the bytes calls it first.
  void WillBeWritten() const {
    for (const std::atomic<DerivedFromBytes*>& each : derived_) {
      if (auto* const derived = each.load(std::memory_order_acquire)) {
        derived->Invalidate();
      }
    }
  }

  // Returns null if nothing was set. The value lives as long as the buffer.
  DerivedFromBytes* derived(
      DerivedFromBytes::Kind kind = DerivedFromBytes::kMain) const {
    return derived_[kind].load(std::memory_order_acquire);
  }
  // Sets the value unless another thread did before. Returns the value that is
  // set.
  DerivedFromBytes* SetDerived(
      std::unique_ptr<DerivedFromBytes> derived,
      DerivedFromBytes::Kind kind = DerivedFromBytes::kMain) const;

  // Returns null unless the bytes are unwritten.
  const Unmade* unmade() const { return unmade_.get(); }

 private:
  // Throws if the bytes are unwritten: a read could show other tenants' bytes.
  void CheckMade() const {
    TORCH_CHECK(unmade_ == nullptr, "bytes that nobody has written are read");
  }

  const c10::Storage storage_;
  char* const data_;
  const uint64_t size_bytes_;
  const std::shared_ptr<const Unmade> unmade_;
  // Owned by this; by kind.
  mutable std::array<std::atomic<DerivedFromBytes*>, DerivedFromBytes::kKinds>
      derived_ = {};
};

// Returns zero-filled memory of the host; throws c10::Error when there is none.
c10::Storage ZeroedStorage(uint64_t bytes);
// Returns uninitialized memory of the host, all of which the caller overwrites;
// throws c10::Error when there is none.
c10::Storage UninitialisedStorage(uint64_t bytes);

// Returns InvalidArgument (INVALID_VIEW) unless the view obeys PyTorch's rules:
// its element type exists, and only complex or floating-point elements are
// conjugated or negated.
absl::Status CheckViewOfTorch(const srg::TensorView& view);
// Checks the view, and returns the position behind its last byte. Returns
// InvalidArgument (INVALID_VIEW) if that is outside a buffer of this size.
absl::StatusOr<uint64_t> ExtentInside(const srg::TensorView& view,
                                      uint64_t size_bytes);
// Returns Internal unless the bytes lie inside the buffer.
absl::Status CheckWrite(const Buffer& buffer, uint64_t offset, uint64_t bytes);

// Makes a plain tensor over the storage, which is on a CPU or a GPU. The view
// passed CheckViewOfTorch() and lies inside the storage. The caller is under
// c10::InferenceMode.
at::Tensor MakeTensor(const srg::TensorView& view, const c10::Storage& storage);

// Describes the tensor's metadata; slot is 0. Returns false if its element type
// is unknown.
bool DescribeTensor(const at::Tensor& tensor, srg::TensorView* view);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_
