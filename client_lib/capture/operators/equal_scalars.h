// Numbers that are given tensor by tensor and are all the same.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_EQUAL_SCALARS_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_EQUAL_SCALARS_H_

#include <ATen/core/stack.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// The overload to capture for the call on the stack: `info` itself or, where
// its list of numbers is one floating-point number for all tensors, that which
// takes it once. Its arguments are on the stack then.
//
// A number in a list is part of a call's structure, and an optimiser has
// another one at every step; a number by itself is a value of the run.
const OperatorInfo& SayOnce(const OperatorInfo& info, torch::jit::Stack* stack);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_EQUAL_SCALARS_H_
