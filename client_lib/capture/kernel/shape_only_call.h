// Calls in shape-only mode: results without a device, and no call recorded.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_SHAPE_ONLY_CALL_H_
#define CLIENT_LIB_CAPTURE_KERNEL_SHAPE_ONLY_CALL_H_

#include <ATen/core/stack.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Replaces the operator's arguments on the stack by results that have shapes
// alone. Throws NoShape where these are not to be known without running it, and
// c10::Error for mistakes in the call.
void ShapeOnlyCall(const OperatorInfo& info, torch::jit::Stack* stack);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_SHAPE_ONLY_CALL_H_
