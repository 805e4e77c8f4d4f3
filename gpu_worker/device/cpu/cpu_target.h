// The CPU as what PyTorch's operators run on.
#ifndef GPU_WORKER_DEVICE_CPU_CPU_TARGET_H_
#define GPU_WORKER_DEVICE_CPU_CPU_TARGET_H_

#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Lives for ever.
const TorchTarget& CpuTarget();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CPU_TARGET_H_
