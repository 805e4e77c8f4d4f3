// A worker's device on an accelerator: buffers in its memory, PyTorch's
// operators on its compute stream, bytes beside them.
#ifndef GPU_WORKER_DEVICE_CUDA_STREAM_DEVICE_H_
#define GPU_WORKER_DEVICE_CUDA_STREAM_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/graph_store.h"
#include "gpu_worker/device/cuda/staging.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/torch/custom_operators.h"

namespace djinn::worker {

struct StreamDeviceOptions {
  // What it says it has; 0: the accelerator's.
  uint64_t memory_bytes = 0;
  Staging::Options staging;
  GraphStore::Options graphs;
  // Whether runs in fast mode fuse attention that a program spells out.
  bool fuse_attention = true;
};

std::unique_ptr<Device> MakeStreamDevice(
    std::unique_ptr<Accelerator> accelerator, CustomOperators custom,
    const StreamDeviceOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STREAM_DEVICE_H_
