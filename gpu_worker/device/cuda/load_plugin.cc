#include "gpu_worker/device/cuda/load_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/torch_folder.h"

namespace djinn::worker {
namespace {

constexpr char kPlugin[] = "libdjinn_cuda.so";

absl::Status Unavailable(int ordinal, absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE",
                   absl::StrCat("cuda:", ordinal, " cannot be used: ", why));
}

// Returns the linker's error, which names the library that it did not find.
absl::string_view LinkerError() {
  const char* const error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

}  // namespace

std::string FindCudaPlugin() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::filesystem::path folder =
      std::filesystem::path(std::string(path, length > 0 ? length : 0))
          .parent_path();
  for (const std::filesystem::path& candidate :
       {folder / kPlugin, folder / "device" / "cuda" / kPlugin}) {
    std::error_code ignored;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return folder / kPlugin;
}

absl::StatusOr<std::unique_ptr<Device>> LoadDevicePlugin(
    const std::string& plugin, const DevicePluginOptions& options) {
  void* const library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(options.ordinal, absl::StrCat("no plug-in ", plugin,
                                                     ": ", LinkerError()));
  }
  auto* const abi =
      reinterpret_cast<DevicePluginAbi*>(dlsym(library, kDevicePluginAbi));
  auto* const make =
      reinterpret_cast<DevicePluginMake*>(dlsym(library, kDevicePluginMake));
  if (abi == nullptr || make == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "PLUGIN_MISMATCH",
                     absl::StrCat(plugin, " is no plug-in of a device"));
  }
  if (absl::string_view(abi()) != DJINN_DEVICE_PLUGIN_ABI) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "PLUGIN_MISMATCH",
        absl::StrCat(plugin, " was built as \"", abi(),
                     "\", this worker as \"" DJINN_DEVICE_PLUGIN_ABI "\""));
  }
  absl::StatusOr<std::unique_ptr<Device>> device =
      absl::InternalError("the plug-in made no device");
  make(options, &device);
  return device;
}

absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(
    const std::string& plugin, const DevicePluginOptions& options) {
  const std::string folder = TorchFolder();
  if (folder.empty()) {
    return Unavailable(options.ordinal, "this program runs without libtorch");
  }
  // RTLD_GLOBAL, because its registrations and the worker's must find one
  // another.
  const std::string torch = folder + "/libtorch_cuda.so";
  if (dlopen(torch.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return Unavailable(
        options.ordinal,
        absl::StrCat("PyTorch's CUDA half, ", torch,
                     ", was not loaded: ", LinkerError(),
                     " (docs/operator/deploy.md says which wheels bring it)"));
  }
  return LoadDevicePlugin(plugin, options);
}

}  // namespace djinn::worker
