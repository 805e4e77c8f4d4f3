// Checks a call that writes its arguments before it is recorded: raises the
// errors that PyTorch raises, and resizes out= arguments.
#ifndef CLIENT_LIB_CAPTURE_OUTPUTS_WRITTEN_OUTPUTS_H_
#define CLIENT_LIB_CAPTURE_OUTPUTS_WRITTEN_OUTPUTS_H_

#include <ATen/core/stack.h>

#include "absl/functional/function_ref.h"
#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Captures one call: replaces the operator's arguments on the stack by its
// results. The kernel passes its own CaptureCall().
using CaptureFunction =
    absl::FunctionRef<void(const OperatorInfo& info, torch::jit::Stack* stack)>;

// Returns false if only the worker could tell: the call has then been executed
// through its functional form with `capture`, and its results are on the stack.
// Throws as CaptureCall() does.
bool PrepareOutputs(const OperatorInfo& info, torch::jit::Stack* stack,
                    CaptureFunction capture);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUTS_WRITTEN_OUTPUTS_H_
