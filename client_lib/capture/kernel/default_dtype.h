// torch.set_default_dtype(): workers always compute with PyTorch's usual
// default, float32. Where the program has another one, what a call leaves to it
// is said in the call itself: a factory's dtype, and the conversion of whole
// numbers that become real ones.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_DEFAULT_DTYPE_H_
#define CLIENT_LIB_CAPTURE_KERNEL_DEFAULT_DTYPE_H_

#include <ATen/core/ivalue.h>
#include <c10/core/DefaultDtype.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Whether calls mean to a worker what they mean here.
inline bool HasUsualDefaultDtype() {
  return c10::get_default_dtype() == caffe2::TypeMeta::Make<float>();
}

// Rewrites the call's arguments so that its results do not depend on the
// default. May record calls, which convert operands, and throws c10::Error as
// the call itself would, or where it cannot be said otherwise.
void MakeDefaultDtypeExplicit(const OperatorInfo& info, c10::IValue* arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_DEFAULT_DTYPE_H_
