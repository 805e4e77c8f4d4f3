// Numbers among the arguments of a call.
//
// A call's key holds no floating-point values, because a run passes these
// separately. The key does depend on two of their properties: whether a number
// overflows a tensor's dtype, because some kernels refuse such a number, and
// whether all numbers of a list are equal.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_SCALARS_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_SCALARS_H_

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <string>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Throws PyTorch's error if `number` overflows `type`, as 300 overflows uint8.
void CheckFits(c10::ScalarType type, const c10::Scalar& number);

// Appends two bytes to `key` for each pair of a number and a tensor whose dtype
// it overflows: their positions among the arguments. Nearly all calls have no
// such pair.
void AppendOverflows(const OperatorInfo& info,
                     c10::ArrayRef<c10::IValue> arguments, std::string* key);

// Returns the overload to capture for the call on the stack. That is `info`,
// unless the last argument is a list of equal floating-point numbers, one for
// each tensor. In that case it is info.with_one_scalar, and the list on the
// stack is replaced by its first element.
//
// A number in a list is part of a call's graph, whereas a single number is a
// value of the run. An optimizer has other numbers at every step, so its lists
// would make a new graph at every step.
const OperatorInfo& CollapseEqualScalars(const OperatorInfo& info,
                                         torch::jit::Stack* stack);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_SCALARS_H_
