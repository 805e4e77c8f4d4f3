// How fast a device is, measured as runs use it: through its interface alone,
// so also where calls return before the device has done what they ask for.
#ifndef GPU_WORKER_DEVICE_TORCH_DEVICE_SPEED_H_
#define GPU_WORKER_DEVICE_TORCH_DEVICE_SPEED_H_

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "djinn/v1/placement.pb.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Rates of products of single-precision matrices, of reading and writing
// memory that no cache holds, and the time of the smallest call. Each is what
// further calls of a chain add to its time, so that the way there and back does
// not count; the best of a few tries. Takes up to half a second, and an eighth
// of the device's memory.
//
// For a device that nobody else uses yet; the CPU has a measurement of its own
// (device/cpu/calibration.h). Any error of the device; FailedPrecondition
// (SPEED_NOT_MEASURED) where further calls add nothing.
absl::StatusOr<v1::DeviceSpeed> MeasureDeviceSpeed(Device* device,
                                                   Clock* clock);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_DEVICE_SPEED_H_
