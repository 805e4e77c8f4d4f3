// Operands of calls that kernels and ways of our own can take.
#ifndef GPU_WORKER_DEVICE_CPU_FLOAT_OPERANDS_H_
#define GPU_WORKER_DEVICE_CPU_FLOAT_OPERANDS_H_

#include <cstdint>

#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Whether its elements are 32-bit floats as they are, and there is one.
bool HasPlainFloats(const srg::TensorView& view);

// What fills the argument in a run; null where it is part of the call.
const Place* PlaceAt(const CallTemplate& call, uint32_t argument);

// Null unless the argument is a tensor of plain floats that is only read.
const Operand* FloatsAt(const CallTemplate& call, uint32_t argument);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_FLOAT_OPERANDS_H_
