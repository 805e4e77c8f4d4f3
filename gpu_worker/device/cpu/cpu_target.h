// Makes the CPU a target of PyTorch's operators.
#ifndef GPU_WORKER_DEVICE_CPU_CPU_TARGET_H_
#define GPU_WORKER_DEVICE_CPU_CPU_TARGET_H_

#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Returns the target, which lives as long as the process.
const TorchTarget& CpuTarget();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CPU_TARGET_H_
