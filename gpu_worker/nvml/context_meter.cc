#include "gpu_worker/nvml/context_meter.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace djinn::worker {

absl::StatusOr<ContextMeter> ContextMeter::Start(const std::string& library) {
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Nvml> nvml, Nvml::Open(library));
  ContextMeter meter(std::move(nvml));
  DJINN_ASSIGN_OR_RETURN(const unsigned count, meter.nvml_->Count());
  for (unsigned i = 0; i < count; ++i) {
    DJINN_ASSIGN_OR_RETURN(const Nvml::Gpu gpu, meter.nvml_->ByIndex(i));
    DJINN_ASSIGN_OR_RETURN(std::string uuid, meter.nvml_->Uuid(gpu));
    DJINN_ASSIGN_OR_RETURN(meter.free_bytes_[std::move(uuid)],
                           meter.nvml_->FreeBytes(gpu));
  }
  return meter;
}

absl::StatusOr<ContextMeter::Reading> ContextMeter::Read(
    const std::string& bus_id, uint64_t available_bytes) const {
  DJINN_ASSIGN_OR_RETURN(const Nvml::Gpu gpu, nvml_->ByBusId(bus_id));
  DJINN_ASSIGN_OR_RETURN(const std::string uuid, nvml_->Uuid(gpu));
  Reading reading;
  const auto found = free_bytes_.find(uuid);
  if (found == free_bytes_.end()) {
    return absl::InternalError("NVML did not list the GPU " + uuid);
  }
  reading.free_bytes = found->second;
  reading.context_bytes =
      reading.free_bytes - std::min(reading.free_bytes, available_bytes);
  return reading;
}

}  // namespace djinn::worker
