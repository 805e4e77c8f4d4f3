// A plug-in whose device cannot be made. Built with DJINN_TEST_ABI, it reports
// another version.
#include "absl/strings/str_cat.h"
#include "gpu_worker/device/cuda/plugin_abi.h"

extern "C" {

const char* djinn_device_plugin_abi() {
#ifdef DJINN_TEST_ABI
  return DJINN_TEST_ABI;
#else
  return DJINN_DEVICE_PLUGIN_ABI;
#endif
}

void djinn_make_device(
    const djinn::worker::DevicePluginOptions& options,
    absl::StatusOr<std::unique_ptr<djinn::worker::Device>>* device) {
  *device = absl::UnavailableError(absl::StrCat(
      "no device ", options.ordinal, " with ", options.memory_bytes, " bytes"));
}

}  // extern "C"
