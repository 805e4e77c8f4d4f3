// Executes calls in shape-only mode: they produce metadata and record nothing.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_SHAPE_ONLY_CALL_H_
#define CLIENT_LIB_CAPTURE_KERNEL_SHAPE_ONLY_CALL_H_

#include <ATen/core/stack.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Replaces the operator's arguments on the stack by results that have metadata
// only. Throws NoShape if the metadata depend on data, and c10::Error for a
// mistake in the call.
void ShapeOnlyCall(const OperatorInfo& info, torch::jit::Stack* stack);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_SHAPE_ONLY_CALL_H_
