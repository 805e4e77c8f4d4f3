#include "gpu_worker/supervised_device.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

constexpr char kUnknown[] = "NVML_UNAVAILABLE";

}  // namespace

SupervisedDevice::SupervisedDevice(SupervisedDeviceOptions options,
                                   Clock* clock)
    : options_(std::move(options)),
      clock_(clock),
      watch_([this] { return Available(); }, clock, options_.min_free_bytes),
      thread_([this] { Run(); }) {}

SupervisedDevice::~SupervisedDevice() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  thread_.join();
}

absl::StatusOr<uint64_t> SupervisedDevice::Available() const {
  if (options_.kind == "cpu") return AvailableMemory(options_.machine);
  if (options_.kind != "cuda") return options_.memory_bytes;
  if (options_.gpu == nullptr) {
    return MakeError(absl::StatusCode::kUnavailable, kUnknown,
                     "device.nvml_library names no library");
  }
  DJINN_ASSIGN_OR_RETURN(const uint64_t free, options_.gpu->FreeBytes());
  // An executor says what is free and what it keeps, and it may lie.
  return std::max(free, std::min(options_.said_by_executors(),
                                 free + options_.most_kept_bytes));
}

void SupervisedDevice::Run() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) clock_->Wait(&stopped_, &mu_, DeviceWatch::kInterval);
      if (stopping_) return;
    }
    watch_.Measure();
  }
}

ReadinessCheck SupervisedDevice::Check() const {
  const bool unknown =
      ErrorReason(watch_.available_bytes().status()) == kUnknown;
  return {"device", unknown ? "" : watch_.failure(), watch_.detail()};
}

}  // namespace djinn::worker
