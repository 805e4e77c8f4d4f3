// The kernel of composites that are captured whole.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_WHOLE_KERNEL_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_WHOLE_KERNEL_H_

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Some composites choose by which tensors require a gradient, even where none
// is recorded, or by what the program has set. A worker sees neither: a call
// for which it would choose otherwise is split here.
class WholeKernel : public c10::OperatorKernel {
 public:
  // `info` lives for ever.
  explicit WholeKernel(const OperatorInfo* info);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack);

 private:
  using Predicate = bool (*)(c10::ArrayRef<c10::IValue> arguments);

  const OperatorInfo* const info_;
  // Whether a worker would choose otherwise; null if it never would.
  const Predicate chooses_otherwise_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_WHOLE_KERNEL_H_
