// Opens PyTorch's CUDA half and the CUDA plug-in, at run time: a worker that
// has no use for them needs neither, nor any of NVIDIA's libraries.
#ifndef GPU_WORKER_DEVICE_CUDA_LOAD_PLUGIN_H_
#define GPU_WORKER_DEVICE_CUDA_LOAD_PLUGIN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/cuda/plugin_abi.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Where libdjinn_cuda.so is looked for when nobody says it: beside the running
// program, and where Bazel puts it relative to the worker.
std::string FindCudaPlugin();

// Loads both, for good, and makes the device. In a process with libtorch_cpu,
// before other threads use PyTorch. FailedPrecondition (DEVICE_UNAVAILABLE)
// says what is missing: a library, a driver, the device itself;
// FailedPrecondition (PLUGIN_MISMATCH) for one that was built otherwise.
absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(
    const std::string& plugin, const DevicePluginOptions& options);

// The plug-in's part of it: for plug-ins of tests.
absl::StatusOr<std::unique_ptr<Device>> LoadDevicePlugin(
    const std::string& plugin, const DevicePluginOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_LOAD_PLUGIN_H_
