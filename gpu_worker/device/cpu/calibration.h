// How fast this machine's PyTorch is, measured.
#ifndef GPU_WORKER_DEVICE_CPU_CALIBRATION_H_
#define GPU_WORKER_DEVICE_CPU_CALIBRATION_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::worker {

// With the threads that the CPU device was made with; takes some 50 ms. Each
// rate is the best of a few short tries: of products of single-precision
// matrices, of copies between pieces of memory that no cache holds, and of the
// smallest call.
//
// Workers that start together on one machine must not look unlike for that:
// they measure one after the other, as far as they see each other
// (host_turn.h), and time in which a processor was taken away is not the
// device's (BestTime()). Where others never let it alone for long, that takes a
// second or two.
v1::DeviceSpeed MeasureCpuSpeed(Clock* clock);

// The least time that `work` took, of some tries in which the process lost no
// processor that it had work for, as `losses` counts; of all tries, if there
// were none within a number of them. Never 0.
absl::Duration BestTime(Clock* clock, const std::function<int64_t()>& losses,
                        absl::FunctionRef<void()> work);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CALIBRATION_H_
