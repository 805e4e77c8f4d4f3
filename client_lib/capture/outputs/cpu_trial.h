// Executes calls on CPU tensors in this process, to learn whether the CPU
// accepts them and what they compute.
//
// A CPU kernel refuses some dtypes, and no schema says which. TryOnCpu() runs
// the kernel on small CPU tensors of zeros, which stand in for the operands,
// and throws the kernel's error at the call; otherwise the error would appear
// at a later read. An error that zeros and ones cause alike is about the call,
// too. A thread tries each operator once for each combination of dtypes and
// dimensions, and each draw of random numbers with the draw's own bounds. It
// does not try the following: a call whose operands are large and whose sizes
// cannot be reduced without changing the call, or a kernel that trusts the
// values of its operands.
#ifndef CLIENT_LIB_CAPTURE_OUTPUTS_CPU_TRIAL_H_
#define CLIENT_LIB_CAPTURE_OUTPUTS_CPU_TRIAL_H_

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Executes a call on CPU tensors, on one thread, without warnings, profilers,
// autocast or autograd. Replaces the arguments on the stack by the results.
// Throws whatever the kernel throws.
void RunOnCpu(const OperatorInfo& info, torch::jit::Stack* stack);

// Throws the CPU's error about dtypes, sizes, a missing kernel or the bounds of
// a draw. Ignores other errors: they may be due to the zeros, and otherwise the
// worker reports them. If `aloud`, the program gets the kernel's warnings.
void TryOnCpu(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
              const InferredResults& inferred, bool aloud);

// Throws the CPU's error about the dtypes of a call's outputs. Call it before
// the outputs are resized. Returns whether the CPU is known to take them.
bool TryOutputsOnCpu(const OperatorInfo& info,
                     c10::ArrayRef<c10::IValue> arguments);

// Throws the CPU's own error, if the CPU refuses the call too, for a call that
// is known to be wrong.
void ThrowAsCpu(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUTS_CPU_TRIAL_H_
