// PyTorch on the CPU as a worker's device: the default, and complete.
#ifndef GPU_WORKER_DEVICE_CPU_CPU_DEVICE_H_
#define GPU_WORKER_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "gpu_worker/device/cpu/cpu_tiers.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

struct CpuDeviceOptions {
  // Limit on PyTorch's tensor memory in this process, temporaries included; an
  // operator that would pass it fails. 0: the machine's physical memory.
  uint64_t memory_bytes = 0;
  // Threads inside one operator; 0: one per core.
  int threads = 0;
  // Whether runs that let it may multiply by packed forms of weights, and the
  // most that these take; 0: a quarter of the memory.
  bool packed_weights = true;
  uint64_t packed_weight_bytes = 0;
  // Whether tensors that programs append to may have room to grow where they
  // are; a thirty-second of the memory at most.
  bool append_in_place = true;
  CpuTiers tiers;
  // Where what is learnt of the processor is kept for the next process; empty:
  // nowhere.
  std::string facts_file;
  // Absolute paths of libraries with more operators: see custom_operators.h.
  std::vector<std::string> operator_libraries;
  // Times ways to carry out an operator; outlives the device.
  Clock* clock = Clock::Real();
};

// Sets process-wide state of PyTorch (thread count, allocator): a process makes
// one such device, before anything else uses PyTorch in another thread. Where a
// second one is made, its options hold for both. InvalidArgument for a negative
// thread count, and as LoadOperatorLibraries().
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(
    const CpuDeviceOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CPU_DEVICE_H_
