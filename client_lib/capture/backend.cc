#include "client_lib/capture/backend.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

#include "client_lib/capture/process_session.h"
#include "client_lib/capture/remote_generator.h"
#include "client_lib/capture/remote_tensor.h"
#include "client_lib/capture/throw_status.h"

namespace djinn::capture {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

thread_local c10::DeviceIndex current_device = 0;

void CheckIndex(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < DeviceCount(), "no device ", DeviceName(),
              ":", static_cast<int>(index), "; there are ", DeviceCount());
}

// One default stream per device: the session's order is the only order.
class Guard : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device device) const override {
    CheckIndex(device.index());
    current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::DEFAULT, stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    if (CurrentSession() == nullptr) return;
    ThrowIfError(ValueOrThrow(DeviceOfProcess(index))->Synchronize());
  }
};

class Hooks : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    CheckIndex(index);
    current_device = index;
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = current_device;
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex index) const override {
    return DefaultRemoteGenerator(index < 0 ? current_device : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<RemoteGenerator>(index < 0 ? current_device
                                                         : index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK(false, "remote memory has no address");
  }
  // Being the process' accelerator, we are asked for every pinned allocation.
  // There is no page-locked memory to give: ordinary memory serves.
  at::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetCPUAllocator();
  }
  bool isPinnedPtr(const void*) const override { return false; }
  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    ResizeStorage(storage, bytes);
  }
};

const Guard guard;
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
    c10::impl::DeviceGuardImplRegistrar(kType, &guard);
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::SetAllocator(kType, RemoteAllocator());
    return true;
  }();
  (void)registered;
}

}  // namespace djinn::capture
