// Watches whether the device is usable: whether it works, answers, and has
// memory available, which other processes may take.
//
// Thread-safe. One thread measures; all others read what it measured, so a
// device that does not answer holds up nobody else, and shows.
#ifndef GPU_WORKER_CORE_DEVICE_WATCH_H_
#define GPU_WORKER_CORE_DEVICE_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/memory_gauge.h"

namespace djinn::worker {

class DeviceWatch {
 public:
  // How often Measure() measures, and how old a measurement may be.
  static constexpr absl::Duration kInterval = absl::Seconds(1);
  static constexpr absl::Duration kMaxAge = absl::Seconds(30);

  // With less than `min_free` bytes available, the device is not usable. 0: any
  // number will do. `device` and `clock` must outlive this.
  DeviceWatch(const Device* device, Clock* clock, uint64_t min_free);
  // Watches a device that this process does not use, by its available memory
  // alone. One thread at a time calls `available`, without locks.
  DeviceWatch(std::function<absl::StatusOr<uint64_t>()> available, Clock* clock,
              uint64_t min_free);

  // Sets the minimum from now on.
  void SetMinFree(uint64_t min_free);

  // Measures, if that is due. One thread at a time.
  void Measure();

  // Returns why the device is not usable; empty when it is.
  std::string failure() const;
  // Returns the available memory as it was last measured, or why it is not
  // known.
  absl::StatusOr<uint64_t> available_bytes() const;
  // Returns the same for operators to read.
  std::string detail() const;
  // Adds the available memory to a scrape, if it is known.
  void Collect(const std::string& worker, Exposition* out) const;

 private:
  DeviceWatch(const Device* device,
              std::function<absl::StatusOr<uint64_t>()> available, Clock* clock,
              uint64_t min_free);

  // Null when this process does not use the device.
  const Device* const device_;
  const std::function<absl::StatusOr<uint64_t>()> measure_;
  Clock& clock_;

  mutable Mutex mu_;
  uint64_t min_free_ ABSL_GUARDED_BY(mu_);
  absl::Duration measured_at_ ABSL_GUARDED_BY(mu_);
  absl::StatusOr<uint64_t> available_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_DEVICE_WATCH_H_
