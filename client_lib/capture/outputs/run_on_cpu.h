// Carries out a call on tensors of the CPU, on the way of another call: without
// threads, warnings, profilers, autocast or autograd.
#ifndef CLIENT_LIB_CAPTURE_OUTPUTS_RUN_ON_CPU_H_
#define CLIENT_LIB_CAPTURE_OUTPUTS_RUN_ON_CPU_H_

#include <ATen/core/stack.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Replaces the arguments by the results. Throws what the kernel throws.
void RunOnCpu(const OperatorInfo& info, torch::jit::Stack* stack);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUTS_RUN_ON_CPU_H_
