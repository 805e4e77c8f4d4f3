#include "gpu_worker/core/device_watch.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace djinn::worker {
namespace {

std::string Readable(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / 0x1p30);
}

// Returns what measures the device's memory. Without a gauge, the memory is the
// worker's alone.
std::function<absl::StatusOr<uint64_t>()> GaugeOf(const Device* device) {
  if (const auto* const gauge = dynamic_cast<const MemoryGauge*>(device)) {
    return [gauge] { return gauge->AvailableBytes(); };
  }
  return [device] { return device->memory_bytes(); };
}

}  // namespace

DeviceWatch::DeviceWatch(const Device* device, Clock* clock, uint64_t min_free)
    : DeviceWatch(device, GaugeOf(device), clock, min_free) {}

DeviceWatch::DeviceWatch(std::function<absl::StatusOr<uint64_t>()> available,
                         Clock* clock, uint64_t min_free)
    : DeviceWatch(nullptr, std::move(available), clock, min_free) {}

DeviceWatch::DeviceWatch(const Device* device,
                         std::function<absl::StatusOr<uint64_t>()> available,
                         Clock* clock, uint64_t min_free)
    : device_(device),
      measure_(std::move(available)),
      clock_(*clock),
      min_free_(min_free),
      measured_at_(clock->Monotonic()),
      available_(measure_()) {}

void DeviceWatch::SetMinFree(uint64_t min_free) {
  MutexLock lock(&mu_);
  min_free_ = min_free;
}

void DeviceWatch::Measure() {
  const absl::Duration now = clock_.Monotonic();
  {
    MutexLock lock(&mu_);
    if (now < measured_at_ + kInterval) return;
  }
  absl::StatusOr<uint64_t> available = measure_();
  MutexLock lock(&mu_);
  measured_at_ = now;
  available_ = std::move(available);
}

std::string DeviceWatch::failure() const {
  const absl::Status health =
      device_ == nullptr ? absl::OkStatus() : device_->Health();
  if (!health.ok()) return std::string(health.message());
  MutexLock lock(&mu_);
  const absl::Duration age = clock_.Monotonic() - measured_at_;
  if (age > kMaxAge) {
    return absl::StrCat("it has not answered for ", absl::ToInt64Seconds(age),
                        " seconds");
  }
  if (min_free_ == 0) return "";
  if (!available_.ok()) return std::string(available_.status().message());
  if (*available_ >= min_free_) return "";
  return absl::StrCat("it has ", Readable(*available_),
                      " of memory available, and device.min_free is ",
                      Readable(min_free_));
}

absl::StatusOr<uint64_t> DeviceWatch::available_bytes() const {
  MutexLock lock(&mu_);
  return available_;
}

std::string DeviceWatch::detail() const {
  const absl::StatusOr<uint64_t> available = available_bytes();
  return available.ok() ? absl::StrCat(*available, " bytes available")
                        : std::string(available.status().message());
}

void DeviceWatch::Collect(const std::string& worker, Exposition* out) const {
  Exposition::Values bytes =
      out->Gauges("djinn_worker_device_available_bytes",
                  "Memory that the worker could still get from the device, "
                  "which other processes may use, too.",
                  {"worker"});
  const absl::StatusOr<uint64_t> available = available_bytes();
  if (available.ok()) bytes.Add(static_cast<double>(*available), {worker});
}

}  // namespace djinn::worker
