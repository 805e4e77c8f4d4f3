// Measures the GPU memory that a process takes before it holds a value: the
// context of the driver, loaded kernels, and libraries' own memory.
#ifndef GPU_WORKER_NVML_CONTEXT_METER_H_
#define GPU_WORKER_NVML_CONTEXT_METER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gpu_worker/nvml/nvml.h"

namespace djinn::worker {

// Not thread-safe.
class ContextMeter {
 public:
  struct Reading {
    // Memory of the GPU that no process used at Start().
    uint64_t free_bytes = 0;
    // Memory that this process has taken since Start(). Exact only if no other
    // process took or released memory of the GPU meanwhile.
    uint64_t context_bytes = 0;
  };

  // Notes the free memory of all GPUs. Call it before the process uses one.
  // Returns the errors of Nvml.
  static absl::StatusOr<ContextMeter> Start(const std::string& library);

  // Returns the memory that the process took. `available_bytes` of the GPU are
  // now free or kept for values. Returns the errors of Nvml.
  absl::StatusOr<Reading> Read(const std::string& bus_id,
                               uint64_t available_bytes) const;

 private:
  explicit ContextMeter(std::unique_ptr<Nvml> nvml) : nvml_(std::move(nvml)) {}

  std::unique_ptr<Nvml> nvml_;
  // By UUID.
  std::map<std::string, uint64_t> free_bytes_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_NVML_CONTEXT_METER_H_
