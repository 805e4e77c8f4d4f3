// Whether the CPU takes a call at all. Its kernels refuse dtypes one by one and
// no schema says which, so the kernel itself is asked: it runs on small CPU
// tensors of zeros that stand for the operands, and only its errors count.
// Workers compute on CPUs; on them the same error would come with the read.
//
// A kernel that took some dtypes is not asked again by the same thread. Never
// asked are: calls with large operands whose sizes cannot be changed without
// changing the call, draws without a generator of their own, and kernels that
// trust the values of their operands.
#ifndef CLIENT_LIB_CAPTURE_OUTPUTS_CPU_TRIAL_H_
#define CLIENT_LIB_CAPTURE_OUTPUTS_CPU_TRIAL_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Throws the CPU's error about dtypes and sizes, or that it lacks the operator.
// Others may come from the zeros, and are left to the worker.
void TryOnCpu(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
              const InferredResults& inferred);

// For a call known to be wrong: throws the CPU's own error, if the CPU refuses
// it here, too.
void ThrowAsCpu(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUTS_CPU_TRIAL_H_
