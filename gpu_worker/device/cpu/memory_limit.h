// A limit on the memory of PyTorch's CPU tensors. Without it an operator asked
// for terabytes gets them from an overcommitting kernel, and the process dies
// when it touches them.
#ifndef GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
#define GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_

#include <cstdint>

namespace djinn::worker {

// Makes PyTorch's CPU allocator throw c10::OutOfMemoryError beyond `bytes` over
// all tensors allocated since the first call. A later call changes the limit.
// The first call must not run beside other uses of PyTorch.
void SetTensorMemoryLimit(uint64_t bytes);

// Large blocks of it wait for the next tensor when they are free
// (block_cache.h): within the limit, together with what is in use, and up to a
// quarter of it. This gives back what nobody needed since the last call, and
// moves some of what has been in use since then to huge pages.
void TidyTensorMemory();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
