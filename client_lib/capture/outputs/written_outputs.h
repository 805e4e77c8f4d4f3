// Checks a call that writes its arguments before it is recorded: raises the
// errors that PyTorch raises, and resizes out= arguments.
#ifndef CLIENT_LIB_CAPTURE_OUTPUTS_WRITTEN_OUTPUTS_H_
#define CLIENT_LIB_CAPTURE_OUTPUTS_WRITTEN_OUTPUTS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include "absl/functional/function_ref.h"
#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn::capture {

// Captures one call: replaces the operator's arguments on the stack by its
// results. The kernel passes its own CaptureCall() as such a function.
using CaptureFunction =
    absl::FunctionRef<void(const OperatorInfo& info, torch::jit::Stack* stack)>;

// Checks the call and sizes its outputs, and returns true. If only the worker
// can find the sizes, executes the call through its functional form with
// `capture`, leaves the results on the stack, and returns false. Throws as
// CaptureCall() does.
bool PrepareOutputs(const OperatorInfo& info, torch::jit::Stack* stack,
                    CaptureFunction capture);

// The following functions raise, at the call, the errors of PyTorch's kernels
// about the tensors that they write. A worker would report these errors too
// late. Each function throws c10::Error.

// Checks that no element is written twice, or written while it is read.
void CheckOverlap(const OperatorInfo& info,
                  c10::ArrayRef<c10::IValue> arguments);

// Checks an out= tensor before it is resized to the result, without its dtype
// if `type_fits`. This check does not apply to operators that PyTorch generated
// from their functional form.
void CheckOut(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
              const at::Tensor& out, const ResultMeta& result, bool type_fits);

// Checks the size and dtype of a tensor that is written in place.
void CheckInPlace(const OperatorInfo& info, const at::Tensor& self,
                  const ResultMeta& result);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUTS_WRITTEN_OUTPUTS_H_
