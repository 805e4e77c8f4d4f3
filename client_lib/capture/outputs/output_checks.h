// The errors that PyTorch's kernels raise about the tensors they write, raised
// at the call: on the worker they would come too late. Each throws c10::Error.
#ifndef CLIENT_LIB_CAPTURE_OUTPUTS_OUTPUT_CHECKS_H_
#define CLIENT_LIB_CAPTURE_OUTPUTS_OUTPUT_CHECKS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn::capture {

// Elements that are written twice, or written while they are read.
void CheckOverlap(const OperatorInfo& info,
                  c10::ArrayRef<c10::IValue> arguments);

// An out= tensor, before it takes the result's size, unless PyTorch generated
// the operator from its functional form.
void CheckOut(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
              const at::Tensor& out, const ResultMeta& result);

// A tensor that is written in place, by the result's size and type.
void CheckInPlace(const OperatorInfo& info, const at::Tensor& self,
                  const ResultMeta& result);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUTS_OUTPUT_CHECKS_H_
