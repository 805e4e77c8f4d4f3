// Runs the executor process of one tenant, which a supervisor starts.
#ifndef GPU_WORKER_EXECUTOR_MAIN_H_
#define GPU_WORKER_EXECUTOR_MAIN_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "gpu_worker/config.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/supervisor/contents/supervisor_store.h"

namespace djinn::worker {

// Makes the device, and completes `config` with its speed and numerics.
using MakeDeviceFunction =
    std::function<absl::StatusOr<std::unique_ptr<Device>>(WorkerConfig*)>;

// Runs an executor on the descriptors that launcher.h names, until the
// supervisor is gone. `wrap` makes buffers of a CPU device. Returns the exit
// status.
int RunExecutor(const MakeDeviceFunction& make_device, const WrapMemory& wrap);

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_MAIN_H_
