// Makes PyTorch on the CPU a worker's device. Strict mode uses PyTorch's own
// operators with PyTorch's threads and gives the same bits. Fast mode may use
// libtorch's prepacked products and fused attention.
#ifndef GPU_WORKER_DEVICE_CPU_CPU_DEVICE_H_
#define GPU_WORKER_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

struct CpuDeviceOptions {
  // Limits PyTorch's tensor memory in this process, temporaries included; an
  // operator that would exceed it fails. 0: the machine's physical memory.
  uint64_t memory_bytes = 0;
  // Threads inside one operator; 0 stands for one per core.
  int threads = 0;
  // Lets runs in fast mode multiply by prepacked copies of weights. They take
  // at most `packed_weight_bytes`, and so do the objects of quantised weights
  // (packed_objects.h). 0: a quarter of the memory.
  bool packed_weights = true;
  uint64_t packed_weight_bytes = 0;
  // Lets runs in fast mode fuse attention that a program spells out.
  bool fuse_attention = true;
  // Absolute paths of libraries with more operators: see custom_operators.h.
  std::vector<std::string> operator_libraries;
  std::vector<std::string> optional_operator_libraries;
  // All sessions of this process are one tenant's, so that memory need not be
  // cleared between them. The process may not see the machine's memory, and
  // counts all of its own as available.
  bool one_tenant = false;
  // Refuses calls on repeated elements that would take longer (work_limit.h).
  absl::Duration longest_call = absl::Minutes(1);
};

// Makes the device. Sets process-wide state of PyTorch (thread count,
// allocator), so a process makes one such device, before other threads use
// PyTorch. A second device's options replace those of the first for both.
// Returns InvalidArgument for a negative thread count, and the errors of
// LoadOperatorLibraries().
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(
    const CpuDeviceOptions& options);

// Returns a buffer of the device over memory of the host, aligned to a page,
// that `owner` keeps and that nothing else writes.
std::shared_ptr<Buffer> WrapHostMemory(void* memory, uint64_t bytes,
                                       std::shared_ptr<void> owner);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CPU_DEVICE_H_
