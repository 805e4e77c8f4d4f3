#include "gpu_worker/nvml/gpu_monitor.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

// Graphics engine exception, illegal memory access, stopped processing,
// preemptive cleanup, video processor exception, context switch time-out.
// NVIDIA's Kubernetes device plug-in ignores the same ones.
constexpr uint32_t kProgramFaults[] = {13, 31, 43, 45, 68, 109};

}  // namespace

bool IsProgramFault(uint32_t xid) {
  return std::find(std::begin(kProgramFaults), std::end(kProgramFaults), xid) !=
         std::end(kProgramFaults);
}

GpuMonitor::GpuMonitor(GpuMonitorOptions options)
    : options_(std::move(options)) {
  opened_ = Open();
  if (!opened_.ok()) {
    log::Warning("the GPU's health is not watched", {{"error", opened_}});
    NoteError(opened_);
    gpu_ = nullptr;
    MutexLock lock(&mu_);
    health_.set_source(absl::StrCat("unavailable: ", opened_.message()));
    return;
  }
  const std::string driver = nvml_->DriverVersion();
  std::string source =
      driver.empty() ? "NVML" : absl::StrCat("NVML, driver ", driver);
  absl::StatusOr<std::unique_ptr<Nvml::XidEvents>> events =
      nvml_->WatchXids(gpu_);
  if (events.ok()) events_ = *std::move(events);
  if (events_ == nullptr) {
    absl::StrAppend(&source, ", without Xids");
    log::Warning("the GPU's Xids are not watched",
                 {{"error", events.status()}});
  }
  {
    MutexLock lock(&mu_);
    health_.set_source(source);
  }
  Sample();
}

absl::Status GpuMonitor::Open() {
  DJINN_ASSIGN_OR_RETURN(nvml_, Nvml::Open(options_.library));
  DJINN_ASSIGN_OR_RETURN(
      gpu_, !options_.uuid.empty() ? nvml_->ByUuid(options_.uuid)
            : !options_.bus_id.empty()
                ? nvml_->ByBusId(options_.bus_id)
                : nvml_->ByIndex(static_cast<unsigned>(options_.index)));
  return absl::OkStatus();
}

GpuMonitor::~GpuMonitor() { Stop(); }

void GpuMonitor::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void GpuMonitor::Start(std::function<void()> failed) {
  failed_ = std::move(failed);
  if (gpu_ == nullptr) return;
  thread_ = std::thread([this] { Run(); });
}

void GpuMonitor::Run() {
  bool told = !failure().empty();
  for (;;) {
    WaitForNext();
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
    }
    Sample();
    if (!told && !failure().empty()) {
      told = true;
      log::Error("the GPU fails: no new leases", {{"why", failure()}});
      if (failed_ != nullptr) failed_();
    }
  }
}

void GpuMonitor::WaitForNext() {
  if (events_ != nullptr) {
    const absl::StatusOr<std::optional<uint32_t>> xid =
        events_->Wait(options_.interval);
    if (xid.ok()) {
      if (xid->has_value()) NoteXid(**xid);
      return;
    }
    NoteError(xid.status());
    // Waiting failed at once, and may do so again.
  }
  MutexLock lock(&mu_);
  if (!stopping_) stopped_.WaitWithTimeout(&mu_, options_.interval);
}

void GpuMonitor::Sample() {
  const auto temperature = nvml_->Temperature(gpu_);
  if (!temperature.ok()) NoteError(temperature.status());
  const auto errors = nvml_->UncorrectedEccErrors(gpu_);
  if (!errors.ok()) NoteError(errors.status());
  MutexLock lock(&mu_);
  health_.clear_temperature_celsius();
  if (temperature.ok() && temperature->has_value()) {
    health_.set_temperature_celsius(**temperature);
  }
  health_.clear_uncorrected_ecc_errors();
  if (!errors.ok() || !errors->has_value()) return;
  health_.set_uncorrected_ecc_errors(**errors);
  if (**errors > 0) {
    Fail(absl::StrCat(**errors,
                      " uncorrected ECC errors since the driver was loaded"));
  }
}

void GpuMonitor::NoteXid(uint32_t xid) {
  log::Warning("the driver reported an Xid", {{"xid", xid}});
  MutexLock lock(&mu_);
  health_.set_xid_count(health_.xid_count() + 1);
  health_.set_last_xid(xid);
  ++xids_[xid];
  if (!IsProgramFault(xid)) Fail(absl::StrCat("Xid ", xid));
}

void GpuMonitor::NoteError(const absl::Status& status) {
  if (ErrorReason(status) != "GPU_LOST") return;
  MutexLock lock(&mu_);
  Fail(std::string(status.message()));
}

void GpuMonitor::Fail(std::string why) {
  if (health_.failure().empty()) health_.set_failure(std::move(why));
}

std::string GpuMonitor::failure() const {
  MutexLock lock(&mu_);
  return health_.failure();
}

absl::StatusOr<uint64_t> GpuMonitor::FreeBytes() const {
  DJINN_RETURN_IF_ERROR(opened_);
  return nvml_->FreeBytes(gpu_);
}

v1::GpuHealth GpuMonitor::health() const {
  MutexLock lock(&mu_);
  return health_;
}

void GpuMonitor::Collect(const std::string& worker, Exposition* out) const {
  MutexLock lock(&mu_);
  out->Gauge("djinn_worker_gpu_monitored",
             "1 when NVML tells the GPU's health, 0 when it is not available.",
             gpu_ != nullptr ? 1 : 0, {{"worker", worker}});
  if (health_.has_temperature_celsius()) {
    out->Gauge("djinn_worker_gpu_temperature_celsius",
               "Temperature of the GPU.", health_.temperature_celsius(),
               {{"worker", worker}});
  }
  if (health_.has_uncorrected_ecc_errors()) {
    out->Gauge("djinn_worker_gpu_uncorrected_ecc_errors",
               "Memory errors of the GPU that were not corrected, since its "
               "driver was loaded.",
               static_cast<double>(health_.uncorrected_ecc_errors()),
               {{"worker", worker}});
  }
  for (const auto& [xid, count] : xids_) {
    out->Counter("djinn_worker_gpu_xid_events_total",
                 "Errors that the GPU's driver reported, by Xid.",
                 static_cast<double>(count),
                 {{"worker", worker}, {"xid", absl::StrCat(xid)}});
  }
}

}  // namespace djinn::worker
