#include "gpu_worker/nvml/nvml.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {

using nvml_abi::EventData;
using nvml_abi::Handle;
using nvml_abi::Result;

struct Nvml::Functions {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*driver_version)(char*, unsigned) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*by_index)(unsigned, Handle*) = nullptr;
  Result (*by_bus_id)(const char*, Handle*) = nullptr;
  Result (*by_uuid)(const char*, Handle*) = nullptr;
  Result (*uuid)(Handle, char*, unsigned) = nullptr;
  Result (*memory)(Handle, nvml_abi::Memory*) = nullptr;
  Result (*temperature)(Handle, int, unsigned*) = nullptr;
  Result (*ecc_errors)(Handle, int, int, unsigned long long*) = nullptr;
  Result (*event_set_create)(Handle*) = nullptr;
  Result (*register_events)(Handle, unsigned long long, Handle) = nullptr;
  Result (*event_set_wait)(Handle, EventData*, unsigned) = nullptr;
  Result (*event_set_free)(Handle) = nullptr;

  // Returns the name of the first function that the library lacks; null if it
  // has all of them.
  const char* Find(void* library) {
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
          dlsym(library, name));
      if (*function == nullptr && missing == nullptr) missing = name;
    };
    find("nvmlInit_v2", &init);
    find("nvmlShutdown", &shutdown);
    find("nvmlErrorString", &error_string);
    find("nvmlSystemGetDriverVersion", &driver_version);
    find("nvmlDeviceGetCount_v2", &count);
    find("nvmlDeviceGetHandleByIndex_v2", &by_index);
    find("nvmlDeviceGetHandleByPciBusId_v2", &by_bus_id);
    find("nvmlDeviceGetHandleByUUID", &by_uuid);
    find("nvmlDeviceGetUUID", &uuid);
    find("nvmlDeviceGetMemoryInfo", &memory);
    find("nvmlDeviceGetTemperature", &temperature);
    find("nvmlDeviceGetTotalEccErrors", &ecc_errors);
    find("nvmlEventSetCreate", &event_set_create);
    find("nvmlDeviceRegisterEvents", &register_events);
    find("nvmlEventSetWait_v2", &event_set_wait);
    find("nvmlEventSetFree", &event_set_free);
    return missing;
  }
};

namespace {

absl::Status Unavailable(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnavailable, "NVML_UNAVAILABLE", why);
}

}  // namespace

class Nvml::Events : public Nvml::XidEvents {
 public:
  Events(const Nvml* nvml, Handle set) : nvml_(*nvml), set_(set) {}
  ~Events() override { nvml_.functions_->event_set_free(set_); }

  absl::StatusOr<std::optional<uint32_t>> Wait(
      absl::Duration timeout) override {
    EventData event = {};
    const Result result = nvml_.functions_->event_set_wait(
        set_, &event,
        static_cast<unsigned>(absl::ToInt64Milliseconds(timeout)));
    if (result == nvml_abi::kTimeout) return std::nullopt;
    DJINN_RETURN_IF_ERROR(nvml_.ToStatus(result, "nvmlEventSetWait_v2"));
    if (event.type != nvml_abi::kXidEvent) return std::nullopt;
    return std::optional<uint32_t>(static_cast<uint32_t>(event.data));
  }

 private:
  const Nvml& nvml_;
  const Handle set_;
};

Nvml::Nvml(std::string library)
    : library_(std::move(library)), functions_(std::make_unique<Functions>()) {}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  // The library stays loaded, because NVIDIA's may leave threads behind.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const error = dlerror();
    return Unavailable(error == nullptr ? library + " cannot be loaded"
                                        : std::string(error));
  }
  auto nvml = absl::WrapUnique(new Nvml(library));
  if (const char* const missing = nvml->functions_->Find(loaded)) {
    nvml->functions_ = nullptr;
    return Unavailable(absl::StrCat(library, " has no ", missing));
  }
  const Result result = nvml->functions_->init();
  if (result != nvml_abi::kSuccess) {
    absl::Status status = nvml->ToStatus(result, "nvmlInit_v2");
    nvml->functions_ = nullptr;
    return status;
  }
  return nvml;
}

Nvml::~Nvml() {
  if (functions_ != nullptr) functions_->shutdown();
}

absl::Status Nvml::ToStatus(Result result, const char* function) const {
  if (result == nvml_abi::kSuccess) return absl::OkStatus();
  const std::string why = absl::StrCat(library_, ": ", function, ": ",
                                       functions_->error_string(result));
  if (result == nvml_abi::kGpuIsLost) {
    return MakeError(absl::StatusCode::kDataLoss, "GPU_LOST", why);
  }
  return Unavailable(why);
}

std::string Nvml::DriverVersion() const {
  char text[nvml_abi::kTextSize] = {};
  const Result result = functions_->driver_version(text, sizeof(text));
  return result == nvml_abi::kSuccess ? text : "";
}

absl::StatusOr<unsigned> Nvml::Count() const {
  unsigned count = 0;
  DJINN_RETURN_IF_ERROR(
      ToStatus(functions_->count(&count), "nvmlDeviceGetCount_v2"));
  return count;
}

absl::StatusOr<Nvml::Gpu> Nvml::ByIndex(unsigned index) const {
  Gpu gpu = nullptr;
  DJINN_RETURN_IF_ERROR(ToStatus(functions_->by_index(index, &gpu),
                                 "nvmlDeviceGetHandleByIndex_v2"));
  return gpu;
}

absl::StatusOr<Nvml::Gpu> Nvml::ByBusId(const std::string& bus_id) const {
  Gpu gpu = nullptr;
  DJINN_RETURN_IF_ERROR(ToStatus(functions_->by_bus_id(bus_id.c_str(), &gpu),
                                 "nvmlDeviceGetHandleByPciBusId_v2"));
  return gpu;
}

absl::StatusOr<Nvml::Gpu> Nvml::ByUuid(const std::string& uuid) const {
  Gpu gpu = nullptr;
  DJINN_RETURN_IF_ERROR(ToStatus(functions_->by_uuid(uuid.c_str(), &gpu),
                                 "nvmlDeviceGetHandleByUUID"));
  return gpu;
}

absl::StatusOr<std::string> Nvml::Uuid(Gpu gpu) const {
  char text[nvml_abi::kTextSize] = {};
  DJINN_RETURN_IF_ERROR(
      ToStatus(functions_->uuid(gpu, text, sizeof(text)), "nvmlDeviceGetUUID"));
  return std::string(text);
}

absl::StatusOr<uint64_t> Nvml::FreeBytes(Gpu gpu) const {
  nvml_abi::Memory memory = {};
  DJINN_RETURN_IF_ERROR(
      ToStatus(functions_->memory(gpu, &memory), "nvmlDeviceGetMemoryInfo"));
  return memory.free;
}

absl::StatusOr<std::optional<uint32_t>> Nvml::Temperature(Gpu gpu) const {
  unsigned celsius = 0;
  const Result result =
      functions_->temperature(gpu, nvml_abi::kGpuTemperature, &celsius);
  if (result == nvml_abi::kNotSupported) return std::nullopt;
  DJINN_RETURN_IF_ERROR(ToStatus(result, "nvmlDeviceGetTemperature"));
  return std::optional<uint32_t>(celsius);
}

absl::StatusOr<std::optional<uint64_t>> Nvml::UncorrectedEccErrors(
    Gpu gpu) const {
  unsigned long long errors = 0;
  const Result result = functions_->ecc_errors(
      gpu, nvml_abi::kUncorrectedError, nvml_abi::kVolatileCounter, &errors);
  if (result == nvml_abi::kNotSupported) return std::nullopt;
  DJINN_RETURN_IF_ERROR(ToStatus(result, "nvmlDeviceGetTotalEccErrors"));
  return std::optional<uint64_t>(errors);
}

absl::StatusOr<std::unique_ptr<Nvml::XidEvents>> Nvml::WatchXids(
    Gpu gpu) const {
  Handle set = nullptr;
  DJINN_RETURN_IF_ERROR(
      ToStatus(functions_->event_set_create(&set), "nvmlEventSetCreate"));
  auto events = std::make_unique<Events>(this, set);
  const Result result =
      functions_->register_events(gpu, nvml_abi::kXidEvent, set);
  if (result == nvml_abi::kNotSupported) return nullptr;
  DJINN_RETURN_IF_ERROR(ToStatus(result, "nvmlDeviceRegisterEvents"));
  return std::unique_ptr<XidEvents>(std::move(events));
}

}  // namespace djinn::worker
