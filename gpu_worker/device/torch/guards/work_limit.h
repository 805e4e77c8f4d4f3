// Estimates the work of calls, and limits work that memory does not bound.
//
// A view may repeat elements: one number, expanded, is a tensor of any size,
// and its sum takes as long as that of a real tensor. No other session has the
// device until the call is over. Memory bounds the work on tensors without
// repeated elements.
#ifndef GPU_WORKER_DEVICE_TORCH_GUARDS_WORK_LIMIT_H_
#define GPU_WORKER_DEVICE_TORCH_GUARDS_WORK_LIMIT_H_

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "common/srg/graph.h"

namespace djinn::worker {

// The longest call unless the operator of the worker says otherwise.
inline constexpr absl::Duration kLongestCall = absl::Minutes(1);

// Returns InvalidArgument (WORK_LIMIT), which names the limit, if the call
// would take longer than `longest` because of an operand that repeats elements:
// the operand has too many elements, or its product needs too many
// multiplications. The node must have passed srg::Validate().
absl::Status CheckWork(const c10::FunctionSchema& schema, const srg::Node& node,
                       c10::Device device, absl::Duration longest);

// Returns the number of multiplications of a matrix product, a convolution or
// an attention; 0 for any other operator. The node must have passed
// srg::Validate().
double Multiplications(const c10::FunctionSchema& schema,
                       const srg::Node& node);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GUARDS_WORK_LIMIT_H_
