// How much a call may compute that no memory bounds.
//
// A view may repeat elements: one number, expanded, is a tensor of any size,
// and a sum of it lasts as long. Nobody else has the device until the call is
// over. What a call does with tensors that lie in memory is bounded by that.
#ifndef GPU_WORKER_DEVICE_TORCH_WORK_LIMIT_H_
#define GPU_WORKER_DEVICE_TORCH_WORK_LIMIT_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "common/srg/structure.h"

namespace djinn::worker {

// InvalidArgument with a plain text when an operand that repeats elements has
// more of them, or when a product of such an operand multiplies more, than the
// device does in a minute or so. The node passed srg::Validate().
absl::Status CheckWork(const c10::FunctionSchema& schema, const srg::Node& node,
                       c10::Device device);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_WORK_LIMIT_H_
