// Says how much memory a device has available, for devices whose memory other
// processes use, too. Such a Device implements this interface besides.
#ifndef GPU_WORKER_DEVICE_MEMORY_GAUGE_H_
#define GPU_WORKER_DEVICE_MEMORY_GAUGE_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace djinn::worker {

// Thread-safe.
class MemoryGauge {
 public:
  virtual ~MemoryGauge() = default;
  // Returns how much memory this process could still get from the device, with
  // what it keeps for later allocations. Takes up to some milliseconds.
  virtual absl::StatusOr<uint64_t> AvailableBytes() const = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_MEMORY_GAUGE_H_
