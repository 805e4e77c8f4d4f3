// Buffers that are PyTorch storages, so that operators' results become buffers
// without a copy, and windows onto them as tensors.
//
// The bytes of some lie apart, in blocks with room behind each (Pitch), so that
// a tensor can grow along another dimension than its first one where it is.
// Whoever asks for their storage gets the bytes together, moved there by the
// first who does; who can do with blocks asks for Apart().
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Storage.h"
#include "c10/util/Exception.h"
#include "common/mutex.h"
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

// What bytes would be made of that nobody writes: a mark for the calls of one
// device that know what to do with it. Whoever else gets the buffer cannot read
// it.
class Unmade {
 public:
  virtual ~Unmade() = default;
};

// Blocks of bytes that lie apart.
struct Pitch {
  uint64_t blocks = 0;
  uint64_t block_bytes = 0;
  // From the start of one to that of the next.
  uint64_t pitch_bytes = 0;
};

// The room behind the blocks of a buffer. Destroyed when there is none any
// more.
class PitchRoom {
 public:
  virtual ~PitchRoom() = default;
  // Somebody needed the bytes together, and has moved them. Any thread.
  virtual void Lost() = 0;
};

// Thread-safe as far as Buffer is: bytes are written by a lone holder only, who
// says so first.
class TorchBuffer final : public Buffer {
 public:
  // Fixes the storage's size: an operator that would resize it throws. No other
  // buffer is made from the storage.
  explicit TorchBuffer(c10::Storage storage);
  // The same of bytes that lie apart in it.
  TorchBuffer(c10::Storage storage, const Pitch& pitch,
              std::unique_ptr<PitchRoom> room);
  ~TorchBuffer() override;

  uint64_t size_bytes() const override { return size_bytes_; }

  // With the bytes together; throws c10::Error when there is no memory to move
  // them to, or nobody has written them.
  const c10::Storage& storage() const {
    CheckMade();
    if (apart()) MoveTogether();
    return storage_;
  }
  // Likewise. Null for a buffer without bytes.
  char* data() const {
    CheckMade();
    if (apart()) MoveTogether();
    return data_;
  }
  // Whether `impl` is its memory, wherever in it the bytes lie.
  bool IsOver(const c10::StorageImpl* impl) const;

  // Whether the bytes lie apart; once they do not, they never do again.
  bool apart() const {
    return spread_ != nullptr && spread_->apart.load(std::memory_order_acquire);
  }
  struct Blocks {
    c10::Storage storage;
    Pitch pitch;
  };
  // The memory with the bytes where they are; nothing where they lie together.
  std::optional<Blocks> Apart() const;
  // What pays for the room; null where the bytes lie together. The buffer has
  // no bytes any more. For its lone holder, who is about to drop it.
  std::unique_ptr<PitchRoom> TakeRoom() const;

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

  // Whether the bytes were made by appending to another tensor's. A mark for
  // whoever carries appending out; set before anybody else has the buffer.
  bool appended() const { return appended_; }
  void SetAppended() { appended_ = true; }

  // Null but for a buffer whose bytes are not written. Set before anybody else
  // has the buffer.
  const Unmade* unmade() const { return unmade_.get(); }
  void SetUnmade(std::shared_ptr<const Unmade> unmade) {
    unmade_ = std::move(unmade);
  }

 private:
  struct Spread {
    Mutex mu;
    std::atomic<bool> apart{true};
    Pitch pitch;
    std::unique_ptr<PitchRoom> room ABSL_GUARDED_BY(mu);
  };

  // Others' bytes may have been there.
  void CheckMade() const {
    TORCH_CHECK(unmade_ == nullptr, "bytes that nobody has written are read");
  }
  void MoveTogether() const;

  // Stay once the bytes lie together; until then under Spread::mu.
  mutable c10::Storage storage_;
  mutable char* data_;
  mutable uint64_t size_bytes_;
  // Null where the bytes never lay apart.
  const std::unique_ptr<Spread> spread_;
  bool appended_ = false;
  std::shared_ptr<const Unmade> unmade_;
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
// Where the last byte of such a view lies, plus one: inside a buffer of this
// size. InvalidArgument (INVALID_VIEW).
absl::StatusOr<uint64_t> ExtentInside(const srg::TensorView& view,
                                      uint64_t size_bytes);
// Internal, unless the bytes lie inside the buffer: whoever writes has checked.
absl::Status CheckWrite(const Buffer& buffer, uint64_t offset, uint64_t bytes);

// A plain tensor over the storage, which is on a CPU or a GPU. The view passed
// CheckViewOfTorch() and lies inside the storage. Under c10::InferenceMode.
at::Tensor MakeTensor(const srg::TensorView& view, const c10::Storage& storage);

// The same over blocks, for a view of the bytes as they were together;
// undefined where it is none of them: an element's next one would lie in the
// room.
at::Tensor MakeTensor(const srg::TensorView& view,
                      const TorchBuffer::Blocks& blocks);

// The tensor's metadata; slot is 0. False if its element type is not known.
bool DescribeTensor(const at::Tensor& tensor, srg::TensorView* view);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_BUFFER_H_
