#include "client_lib/capture/device/backend.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

#include "client_lib/capture/device/device_guard.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/device/remote_generator.h"
#include "client_lib/capture/device/remote_tensor.h"

namespace djinn::capture {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

class Hooks : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    DeviceGuard().setDevice({kType, index});
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return DeviceGuard().getDevice().index();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex index) const override {
    return DefaultRemoteGenerator(index < 0 ? getCurrentDevice() : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<RemoteGenerator>(index < 0 ? getCurrentDevice()
                                                         : index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK(false, "remote memory has no address");
  }
  // PyTorch asks the process' accelerator for every pinned allocation. This
  // device has no page-locked memory, so it returns ordinary memory.
  at::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetCPUAllocator();
  }
  bool isPinnedPtr(const void*) const override { return false; }
  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    ResizeStorage(storage, bytes);
  }
};

Hooks hooks;

}  // namespace

const std::string& DeviceName() {
  static const std::string* const name = [] {
    const char* chosen = std::getenv("DJINN_DEVICE_NAME");
    return new std::string(
        chosen != nullptr && *chosen != '\0' ? chosen : "remote_accelerator");
  }();
  return *name;
}

void RegisterBackend() {
  static const bool registered = [] {
    c10::register_privateuse1_backend(DeviceName());
    c10::impl::DeviceGuardImplRegistrar(kType, &DeviceGuard());
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::SetAllocator(kType, RemoteAllocator());
    RegisterAutocast();
    return true;
  }();
  (void)registered;
}

}  // namespace djinn::capture
