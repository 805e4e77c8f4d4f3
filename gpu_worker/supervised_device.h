// Watches the memory that executors could still get from their device, for
// their supervisor, which uses no device. Like a worker without executors, it
// counts the memory that is available on the machine; on a GPU, the free memory
// and the memory that a process keeps for later allocations.
#ifndef GPU_WORKER_SUPERVISED_DEVICE_H_
#define GPU_WORKER_SUPERVISED_DEVICE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "common/net/monitoring/monitoring_server.h"
#include "gpu_worker/core/device_watch.h"
#include "gpu_worker/device/cpu/available_memory.h"
#include "gpu_worker/nvml/gpu_monitor.h"

namespace djinn::worker {

struct SupervisedDeviceOptions {
  // "cpu", "cuda" or "fake".
  std::string kind;
  // All the memory of a fake device, which no other process uses.
  uint64_t memory_bytes = 0;
  // With less memory available, the device is not usable. 0: no minimum.
  uint64_t min_free_bytes = 0;
  // The files that report the machine's memory, for a CPU.
  MemoryFiles machine;
  // Reports the free memory of a GPU, and must outlive the watch. Null: it is
  // unknown.
  const GpuMonitor* gpu = nullptr;
  // Returns the largest amount that an executor reports as available from the
  // GPU. The report counts up to the memory that an executor may keep.
  std::function<uint64_t()> said_by_executors;
  uint64_t most_kept_bytes = 0;
};

// Thread-safe.
class SupervisedDevice {
 public:
  // Measures once, and starts a thread that measures from then on, because NVML
  // may block.
  // `clock` must outlive this.
  SupervisedDevice(SupervisedDeviceOptions options, Clock* clock);
  // Waits for a measurement under way.
  ~SupervisedDevice();
  SupervisedDevice(const SupervisedDevice&) = delete;
  SupervisedDevice& operator=(const SupervisedDevice&) = delete;

  // Changes the minimum.
  void SetMinFree(uint64_t bytes) { watch_.SetMinFree(bytes); }

  // Returns whether enough memory is available. If the memory of a GPU is
  // unknown, the check succeeds and says why.
  ReadinessCheck Check() const;
  // Adds the available memory to a scrape, if it is known.
  void Collect(const std::string& worker, Exposition* out) const {
    watch_.Collect(worker, out);
  }

 private:
  absl::StatusOr<uint64_t> Available() const;
  void Run();

  const SupervisedDeviceOptions options_;
  Clock* const clock_;
  DeviceWatch watch_;

  Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISED_DEVICE_H_
