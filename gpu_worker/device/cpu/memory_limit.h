// Limits the memory of PyTorch's CPU tensors. Without the limit an operator
// asked for terabytes gets them from an overcommitting kernel, and the process
// dies when it touches them.
#ifndef GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
#define GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_

#include <cstdint>

namespace djinn::worker {

// Makes PyTorch's CPU allocator throw c10::OutOfMemoryError beyond `bytes` over
// all tensors allocated since the first call. A later call changes the limit.
// The first call must not run beside other uses of PyTorch.
void SetTensorMemoryLimit(uint64_t bytes);

// Gives back the free blocks (block_cache.h) that no tensor needed since the
// last call, and moves some blocks that were in use since then to huge pages.
// Free blocks wait within the limit, together with the memory in use, and take
// a quarter of the limit at most.
void TidyTensorMemory();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
