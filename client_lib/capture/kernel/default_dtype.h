// Supports torch.set_default_dtype(). Workers always compute with PyTorch's
// usual default, float32. If the program has set another one, a call that
// depends on it is rewritten: a factory names its dtype, and integers that
// become real numbers are converted explicitly.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_DEFAULT_DTYPE_H_
#define CLIENT_LIB_CAPTURE_KERNEL_DEFAULT_DTYPE_H_

#include <ATen/core/ivalue.h>
#include <c10/core/DefaultDtype.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Returns whether calls mean the same to a worker and to this process.
inline bool HasUsualDefaultDtype() {
  return c10::get_default_dtype() == caffe2::TypeMeta::Make<float>();
}

// Rewrites the call's arguments so that its results do not depend on the
// default dtype. It may record calls that convert operands. Throws c10::Error
// as the call itself would, or if the call cannot be rewritten.
void MakeDefaultDtypeExplicit(const OperatorInfo& info, c10::IValue* arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_DEFAULT_DTYPE_H_
