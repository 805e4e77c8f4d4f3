// Numbers that do not fit the type of a tensor of their call, as 300 beside
// bytes. Kernels convert numbers to the type that they compute in, and refuse
// some that do not fit: a call with such a number is another call than one
// without.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_MISFITS_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_MISFITS_H_

#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <string>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Throws PyTorch's error when the number does not fit.
void CheckFits(c10::ScalarType type, const c10::Scalar& number);

// Appends a mark for each number and tensor that it does not fit; to the key of
// nearly every call, nothing.
void AppendMisfits(const OperatorInfo& info,
                   c10::ArrayRef<c10::IValue> arguments, std::string* key);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_MISFITS_H_
