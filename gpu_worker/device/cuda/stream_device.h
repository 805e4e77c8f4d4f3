// Makes a worker's device from an accelerator: buffers lie in its memory,
// PyTorch's operators run on its compute stream, and transfers run
// concurrently.
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
  // The memory that the device reports; 0 stands for all memory of the
  // accelerator.
  uint64_t memory_bytes = 0;
  Staging::Options staging;
  GraphStore::Options graphs;
  // Lets runs in fast mode fuse attention that a program spells out.
  bool fuse_attention = true;
};

std::unique_ptr<Device> MakeStreamDevice(
    std::unique_ptr<Accelerator> accelerator, CustomOperators custom,
    const StreamDeviceOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STREAM_DEVICE_H_
