// Limits the memory of PyTorch's CPU tensors. Without the limit, an operator
// that asks for terabytes gets them from an overcommitting kernel, and the
// process dies when it touches them.
#ifndef GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
#define GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_

#include <cstdint>

namespace djinn::worker {

// Makes PyTorch's CPU allocator throw c10::OutOfMemoryError beyond `bytes` over
// all tensors allocated since the first call. A later call changes the limit.
// No other thread may use PyTorch during the first call.
void SetTensorMemoryLimit(uint64_t bytes);

// Frees the idle blocks (block_cache.h) that no tensor needed since the last
// call. Idle blocks count towards the limit, together with the memory in use,
// and take at most a quarter of it.
void TidyTensorMemory();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_MEMORY_LIMIT_H_
