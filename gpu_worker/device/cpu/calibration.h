// Measures how fast this machine's PyTorch is.
#ifndef GPU_WORKER_DEVICE_CPU_CALIBRATION_H_
#define GPU_WORKER_DEVICE_CPU_CALIBRATION_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::worker {

// Measures with the threads that the CPU device was made with; takes some 50
// ms. Each rate is the best of a few short tries: of products of
// single-precision matrices, of copies between pieces of memory that no cache
// holds, and of the smallest call. Ignores tries during which the process lost
// a processor (BestTime()), so that a loaded machine does not look like a slow
// device.
v1::DeviceSpeed MeasureCpuSpeed(Clock* clock);

// Returns the least time that `work` took in the tries during which the process
// lost no processor that it had work for, as `losses` counts; in all tries, if
// every try lost one. Never returns 0.
absl::Duration BestTime(Clock* clock, const std::function<int64_t()>& losses,
                        absl::FunctionRef<void()> work);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CALIBRATION_H_
