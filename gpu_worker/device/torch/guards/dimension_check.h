// Checks dimensions that a call names. Most operators check them; the kernels
// of some use them as indices as they are.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_DIMENSION_CHECK_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_DIMENSION_CHECK_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

// Returns InvalidArgument with PyTorch's text for a dimension that no tensor of
// an aten operator's call can have: operands, what their sizes are given for,
// and results, which have at most one dimension more. An operator that wraps
// its dimensions itself refuses the others with its own text. Fourier
// transforms wrap none, so all of theirs must be dimensions of the operand, and
// differ.
absl::Status CheckDimensions(const c10::FunctionSchema& schema,
                             const CallTemplate& call);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_DIMENSION_CHECK_H_
