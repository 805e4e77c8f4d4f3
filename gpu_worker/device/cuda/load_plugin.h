// Opens PyTorch's CUDA libraries and the CUDA plug-in at run time: a worker
// that does not use them needs neither, nor any of NVIDIA's libraries.
#ifndef GPU_WORKER_DEVICE_CUDA_LOAD_PLUGIN_H_
#define GPU_WORKER_DEVICE_CUDA_LOAD_PLUGIN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/cuda/plugin_abi.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Returns where to look for libdjinn_cuda.so by default: beside the running
// program, or where Bazel puts it relative to the worker.
std::string FindCudaPlugin();

// Loads both for the life of the process, and makes the device. The process has
// libtorch_cpu, and no other thread uses PyTorch yet. Returns
// FailedPrecondition (DEVICE_UNAVAILABLE), which names what is missing: a
// library, a driver, the device itself; or FailedPrecondition (PLUGIN_MISMATCH)
// for a plug-in from another build.
absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(
    const std::string& plugin, const DevicePluginOptions& options);

// Loads only the plug-in and makes its device; for plug-ins of tests.
absl::StatusOr<std::unique_ptr<Device>> LoadDevicePlugin(
    const std::string& plugin, const DevicePluginOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_LOAD_PLUGIN_H_
