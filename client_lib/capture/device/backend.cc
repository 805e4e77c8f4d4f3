#include "client_lib/capture/device/backend.h"

#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "client_lib/capture/device/custom_autocast.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/device/remote_generator.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/session/model/fork_guard.h"

namespace djinn::capture {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

class Hooks : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  // The device exists in any case, but has no worker unless the program wants a
  // session. A program that takes an available accelerator must get another.
  bool isAvailable() const override {
    if (IsForkedChild()) return false;
    const char* const coordinator = std::getenv("DJINN_COORDINATOR");
    return CurrentSession() != nullptr ||
           (coordinator != nullptr && *coordinator != '\0');
  }
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
  // device has no page-locked memory, so this returns the allocator of ordinary
  // memory.
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

thread_local c10::DeviceIndex current_device = 0;

// Waits for the device, and throws the first failure that was not reported.
void Synchronize(c10::DeviceIndex index) {
  if (CurrentSession() == nullptr) return;
  ThrowIfError(ValueOrThrow(DeviceOfProcess(index))->Synchronize());
}

// Waits for the device. A call that asks for no values reports no failure of
// one.
void WaitFor(c10::DeviceIndex index) {
  if (CurrentSession() == nullptr) return;
  ThrowIfError(ValueOrThrow(DeviceOfProcess(index))->CatchUp());
}

// PyTorch holds this for an event from the event's first record() on.
struct Event {
  c10::DeviceIndex device;
  std::chrono::steady_clock::time_point time;
};

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
    CheckDeviceIndex(device.index());
    current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    Synchronize(index);
  }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  bool queryStream(const c10::Stream& stream) const override {
    WaitFor(stream.device_index());
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Synchronize(stream.device_index());
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new Event;
    auto* const recorded = static_cast<Event*>(*event);
    recorded->device = stream.device_index();
    if (flag != c10::EventFlag::BACKEND_DEFAULT) return;
    WaitFor(recorded->device);
    recorded->time = std::chrono::steady_clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    if (event != nullptr) WaitFor(static_cast<Event*>(event)->device);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Synchronize(static_cast<Event*>(event)->device);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(
               static_cast<Event*>(end)->time -
               static_cast<Event*>(begin)->time)
        .count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
};

// PyTorch's macros use these names without a namespace.
using at::DimnameList;
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::autocast::CastPolicy;

// Refuses binary_cross_entropy in half precision, as every accelerator does.
at::Tensor RefuseBinaryCrossEntropy(const at::Tensor&, const at::Tensor&,
                                    const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss "
              "are unsafe to autocast.\nMany models use a sigmoid layer right "
              "before the binary cross entropy layer.\nIn this case, combine "
              "the two layers using torch.nn.functional."
              "binary_cross_entropy_with_logits\nor torch.nn."
              "BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
              "BCEWithLogits are\nsafe to autocast.");
}

void RegisterLists(torch::Library& m) {
#define DJINN_LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define DJINN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define DJINN_FP32_SET_OPT_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define DJINN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(DJINN_LOWER_PRECISION)
  AT_FORALL_FP32(DJINN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(DJINN_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(DJINN_PROMOTE)
#undef DJINN_LOWER_PRECISION
#undef DJINN_FP32
#undef DJINN_FP32_SET_OPT_DTYPE
#undef DJINN_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(RefuseBinaryCrossEntropy));
}

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

const c10::impl::DeviceGuardImplInterface& DeviceGuard() {
  static const Guard* const guard = new Guard;
  return *guard;
}

void CheckDeviceIndex(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < DeviceCount(), "there is no device ",
              DeviceName(), ":", static_cast<int>(index), ": this process has ",
              DeviceCount(), " (DJINN_DEVICE_COUNT)");
}

void RegisterAutocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  // The fallthrough serves the operators that are on no list. PyTorch registers
  // no fallback for this key, and the first unlisted operator in an autocast
  // region would fail.
  KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL, "_", kKey,
                                               __FILE__, __LINE__))
      .fallback(torch::CppFunction::makeFallthrough());
  RegisterLists(KeepForever(std::make_unique<torch::Library>(
      torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__)));
  WatchCustomOperators();
  // Casts to the CPU's dtype by default. PyTorch keeps a dtype per thread, and
  // begins with float16 in others.
  at::autocast::set_autocast_dtype(at::kPrivateUse1, at::kBFloat16);
}

}  // namespace djinn::capture
