// Lists the GPUs that a process may use, and derives the configuration of one
// GPU's worker from that for all GPUs.
#ifndef GPU_WORKER_GPU_LIST_H_
#define GPU_WORKER_GPU_LIST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/config.h"
#include "gpu_worker/nvml/nvml.h"

namespace djinn::worker {

// Returns the UUIDs of the GPUs in the order of their PCI addresses. `visible`
// is the value of CUDA_VISIBLE_DEVICES, nullopt if the variable is not set:
// numbers in the same order, or UUIDs or unique beginnings of them, separated
// by commas. They decide which GPUs are returned, and in which order. Errors
// are FailedPrecondition:
//
// NO_GPU: there is none, or the variable hides all.
//
// GPU_UNKNOWN names the entry of the variable that names no GPU, several, or
// one a second time. Parts of GPUs (MIG) are such entries: configure
// `cuda:N` for them.
//
// Other errors are those of Nvml.
absl::StatusOr<std::vector<std::string>> ListGpus(
    const Nvml& nvml, std::optional<absl::string_view> visible);

// Returns the configuration of the worker of GPU `index` of `count`. Its
// worker_id and paths get the suffix "-gpuN". The port of `listen` and
// `advertise` is N higher, unless the system chooses it. The monitoring port is
// N + 1 higher, because the configured one is the supervisor's; while that port
// is busy, the worker uses another one. The disk, the memory for contents and
// the ports of executors are divided equally. Returns InvalidArgument
// (BAD_CONFIG) if a port would be too high, or if there are too few for
// executors.
absl::StatusOr<WorkerConfig> ConfigOfGpu(const WorkerConfig& all, int index,
                                         int count, const std::string& uuid);

}  // namespace djinn::worker

#endif  // GPU_WORKER_GPU_LIST_H_
