// Measures how fast a device is, through the Device interface alone and as runs
// use it. Works for devices whose calls return before their work is done, too.
#ifndef GPU_WORKER_DEVICE_TORCH_DEVICE_SPEED_H_
#define GPU_WORKER_DEVICE_TORCH_DEVICE_SPEED_H_

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "djinn/v1/placement.pb.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Measures the rates of products of single-precision matrices and of reading
// and writing memory that no cache holds, and the time of the smallest call.
// Each measurement is the time that further calls add to a chain of calls, so
// that round trips do not count; the best of a few tries counts. Takes up to
// half a second and an eighth of the device's memory.
//
// Call it before anything else uses the device. Returns any error of the
// device, or FailedPrecondition (SPEED_NOT_MEASURED) if further calls add no
// time.
absl::StatusOr<v1::DeviceSpeed> MeasureDeviceSpeed(Device* device,
                                                   Clock* clock);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_DEVICE_SPEED_H_
