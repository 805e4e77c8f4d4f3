// Declares what a device's plug-in exports and the worker looks up. Both are
// built from the same sources with the same libraries. The worker compares a
// version that proves it before it calls anything else.
#ifndef GPU_WORKER_DEVICE_CUDA_PLUGIN_ABI_H_
#define GPU_WORKER_DEVICE_CUDA_PLUGIN_ABI_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu_worker/device/cuda/plugin_sources.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

struct DevicePluginOptions {
  int ordinal = 0;
  // Memory that the device reports; 0 stands for most of the free memory.
  uint64_t memory_bytes = 0;
  // Budget for recorded runs; 0 stands for a sixteenth of the memory.
  uint64_t graph_bytes = 0;
  // Lets runs be recorded.
  bool graphs = true;
  // Lets runs in fast mode fuse attention that a program spells out.
  bool fuse_attention = true;
  // Absolute paths, as CpuDeviceOptions::operator_libraries.
  std::vector<std::string> operator_libraries;
  std::vector<std::string> optional_operator_libraries;
  // As CudaAcceleratorOptions.
  uint64_t process_bytes = 0;
};

// The version, which changes with everything that crosses the boundary: the
// build hashes this header and those of Device and OperatorLibrary. The
// remainder names the compiler ABI and the PyTorch that both must have been
// built with.
#define DJINN_DEVICE_PLUGIN_ABI               \
  "djinn-device-" DJINN_DEVICE_PLUGIN_SOURCES \
  " gcc-abi-" DJINN_QUOTED(__GXX_ABI_VERSION) " torch-2.11.0"
#define DJINN_QUOTED(macro) DJINN_QUOTED_TEXT(macro)
#define DJINN_QUOTED_TEXT(text) #text

// extern "C" const char* djinn_device_plugin_abi();
using DevicePluginAbi = const char*();
inline constexpr char kDevicePluginAbi[] = "djinn_device_plugin_abi";

// extern "C" void djinn_make_device(const DevicePluginOptions&,
//                                   absl::StatusOr<std::unique_ptr<Device>>*);
using DevicePluginMake = void(const DevicePluginOptions& options,
                              absl::StatusOr<std::unique_ptr<Device>>* device);
inline constexpr char kDevicePluginMake[] = "djinn_make_device";

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_PLUGIN_ABI_H_
