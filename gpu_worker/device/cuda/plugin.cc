// Implements libdjinn_cuda.so: the two symbols of plugin_abi.h, and GPU kernels
// for operators that PyTorch implements only for a CPU.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "gpu_worker/device/cuda/attention_kernels.h"
#include "gpu_worker/device/cuda/cuda_accelerator.h"
#include "gpu_worker/device/cuda/plugin_abi.h"
#include "gpu_worker/device/cuda/stream_device.h"
#include "gpu_worker/device/torch/custom_operators.h"
#include "torch/library.h"

namespace djinn::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> Make(
    const DevicePluginOptions& options) {
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<Accelerator> accelerator,
      MakeCudaAccelerator({.ordinal = options.ordinal,
                           .process_bytes = options.process_bytes}));
  DJINN_ASSIGN_OR_RETURN(
      CustomOperators custom,
      LoadOperatorLibraries(options.operator_libraries,
                            options.optional_operator_libraries));
  StreamDeviceOptions device;
  device.memory_bytes =
      options.memory_bytes > 0
          ? std::min(options.memory_bytes, accelerator->memory_bytes())
          : accelerator->memory_bytes();
  device.graphs.max_bytes =
      options.graph_bytes > 0 ? options.graph_bytes : device.memory_bytes / 16;
  if (!options.graphs) device.graphs.max_graphs = 0;
  device.fuse_attention = options.fuse_attention;
  return MakeStreamDevice(std::move(accelerator), std::move(custom), device);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu",
               TORCH_FN(AttentionForward));
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
               TORCH_FN(AttentionBackward));
}

}  // namespace
}  // namespace djinn::worker

extern "C" {

__attribute__((visibility("default"))) const char* djinn_device_plugin_abi() {
  return DJINN_DEVICE_PLUGIN_ABI;
}

__attribute__((visibility("default"))) void djinn_make_device(
    const djinn::worker::DevicePluginOptions& options,
    absl::StatusOr<std::unique_ptr<djinn::worker::Device>>* device) {
  *device = djinn::worker::Make(options);
}

}  // extern "C"
