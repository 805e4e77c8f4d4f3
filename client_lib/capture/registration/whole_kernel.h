// Composites that are captured whole: their kernel, and the conditions under
// which they are split instead.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_WHOLE_KERNEL_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_WHOLE_KERNEL_H_

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Returns whether results that are computed from the tensor will be
// differentiated: backward, because gradients are recorded and the tensor
// requires one, or forward, because it carries a tangent
// (torch.autograd.forward_ad, torch.func.jvp), whatever the gradient mode is.
inline bool IsDifferentiated(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  // There is one level of tangents; functorch wraps the others.
  return (c10::GradMode::is_enabled() && tensor.requires_grad()) ||
         tensor._fw_grad(/*level=*/0).defined();
}

// Returns whether autocast casts the parts of a composite. Autocast has already
// ended for a composite that is itself on its lists.
inline bool CastsParts() {
  return at::autocast::is_autocast_enabled(at::kPrivateUse1);
}

// Captures a composite whole, or splits a call for which a worker would compute
// something else. Some composites choose a way by which tensors require a
// gradient, even if none is recorded, or by the program's settings, and a
// worker knows neither.
class WholeKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit WholeKernel(const OperatorInfo* info);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack);

 private:
  using Predicate = bool (*)(c10::ArrayRef<c10::IValue> arguments);

  const OperatorInfo* const info_;
  // Decides whether a worker would choose another execution path. Null if it
  // never would.
  const Predicate chooses_otherwise_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_WHOLE_KERNEL_H_
