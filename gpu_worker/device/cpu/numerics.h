// Describes what the last bits of results depend on, on a CPU.
#ifndef GPU_WORKER_DEVICE_CPU_NUMERICS_H_
#define GPU_WORKER_DEVICE_CPU_NUMERICS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace djinn::worker {

// Returns this process' value of WorkerHello.numerics, "cpu-HASH-THREADS": a
// hash of PyTorch's build and what it chose for this processor, the processor's
// kind, features and caches, and the environment variables of the libraries
// that compute; and its number of threads, which a worker that a client starts
// by itself must have, too (client_lib/cluster/local_fallback.h). Call it when
// the device is made. Returns an empty string if the processor is unknown, or
// the machine's processors are not all of one kind.
std::string CpuNumerics();

// Describes the processors, given the text of /proc/cpuinfo.
std::optional<std::string> DescribeProcessors(absl::string_view cpuinfo);

// Describes the environment, without numbers of threads, given entries as in
// environ(7).
std::string DescribeEnvironment(const char* const* entries);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_NUMERICS_H_
