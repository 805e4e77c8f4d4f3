// Limits the memory of PyTorch's CPU tensors, and clears what passes from one
// tenant to another.
//
// Without the limit, an operator that asks for terabytes gets them from an
// overcommitting kernel, and the process dies when it touches them.
//
// An operator may leave parts of its result unwritten. So a new tensor's memory
// is zero unless it can only hold bytes of the tenant for which the thread
// allocates (TensorOwner), or the thread overwrites it (OverwritesTensors).
// Memory below BlockCache::kLeastBytes is malloc's, has no owner and is always
// cleared. In a process of one tenant nothing is cleared.
#ifndef GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
#define GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_

#include <cstdint>
#include <limits>
#include <string>

namespace djinn::worker {

// Makes PyTorch's CPU allocator throw c10::OutOfMemoryError beyond `bytes` over
// all tensors allocated since the first call. A later call changes the limit.
// No other thread may use PyTorch during the first call.
void SetTensorMemoryLimit(uint64_t bytes);

// Says whether all tensors of this process are one tenant's. False at first.
void SetOneTenant(bool one_tenant);

// Names the tenant for which the calling thread allocates tensors, while this
// lives. Null stands for none, whose memory is always cleared. Memory that was
// another tenant's before is cleared. The thread's tensors take at most about
// `most_bytes` at once, less what it frees; beyond, allocating throws
// c10::OutOfMemoryError. Tensors that the operator allocates in threads of its
// own do not count.
class TensorOwner {
 public:
  explicit TensorOwner(
      const std::string* tenant,
      uint64_t most_bytes = std::numeric_limits<uint64_t>::max());
  ~TensorOwner();
  TensorOwner(const TensorOwner&) = delete;
  TensorOwner& operator=(const TensorOwner&) = delete;

 private:
  const uint64_t owner_before_;
  const int64_t room_before_;
};

// Says that the calling thread overwrites all of each tensor that it allocates
// while this lives. The tensors' memory is not cleared, and has no owner.
class OverwritesTensors {
 public:
  OverwritesTensors();
  ~OverwritesTensors();
  OverwritesTensors(const OverwritesTensors&) = delete;
  OverwritesTensors& operator=(const OverwritesTensors&) = delete;

 private:
  const bool before_;
};

// Frees the idle blocks (block_cache.h) that no tensor needed since the last
// call. Idle blocks count towards the limit, together with the memory in use,
// and take at most a quarter of it.
void TidyTensorMemory();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
