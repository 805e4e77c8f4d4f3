// What the last bits of results depend on, on a CPU.
#ifndef GPU_WORKER_DEVICE_CPU_NUMERICS_H_
#define GPU_WORKER_DEVICE_CPU_NUMERICS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace djinn::worker {

// As WorkerHello.numerics, of this process on this machine: a hash of
// PyTorch's build and what it chose for this processor, its number of threads,
// the processor's kind, features and caches, and what the environment says to
// the libraries that compute. Call it when the device is made. Empty where the
// processor cannot be told or the machine's are not all of one kind.
std::string CpuNumerics();

// The part about processors, of the text of /proc/cpuinfo.
std::optional<std::string> DescribeProcessors(absl::string_view cpuinfo);

// The part about the environment: entries as in environ(7).
std::string DescribeEnvironment(const char* const* entries);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_NUMERICS_H_
