// How fast this machine's PyTorch is, measured.
#ifndef GPU_WORKER_DEVICE_CPU_CALIBRATION_H_
#define GPU_WORKER_DEVICE_CPU_CALIBRATION_H_

#include "common/clock.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::worker {

// With the threads that the CPU device was made with; takes some 50 ms. Each
// rate is the best of a few short tries, since others may use the machine: of
// products of single-precision matrices, of copies between pieces of memory
// that no cache holds, and of the smallest call.
v1::DeviceSpeed MeasureCpuSpeed(Clock* clock);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_CALIBRATION_H_
