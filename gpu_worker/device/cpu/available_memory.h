// Reads how much memory this process could still get from the machine.
#ifndef GPU_WORKER_DEVICE_CPU_AVAILABLE_MEMORY_H_
#define GPU_WORKER_DEVICE_CPU_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace djinn::worker {

// Where the kernel says it. Tests have files of their own.
struct MemoryFiles {
  std::string machine = "/proc/meminfo";
  std::string own_group = "/proc/self/cgroup";
  std::string groups = "/sys/fs/cgroup";
};

// Returns the memory that is available on the machine, or less where a control
// group (version 2) around this process limits it. Memory that the kernel would
// take back from files counts as available. Returns FailedPrecondition, which
// names the file, when the machine does not say.
absl::StatusOr<uint64_t> AvailableMemory(const MemoryFiles& files = {});

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_AVAILABLE_MEMORY_H_
