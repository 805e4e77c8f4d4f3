// Whether what is computed from a tensor is to be differentiated.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_DIFFERENTIATED_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_DIFFERENTIATED_H_

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

namespace djinn::capture {

// Backwards, as its gradient is asked for; or forwards, as it carries a tangent
// (torch.autograd.forward_ad, torch.func.jvp), whatever the gradient mode is.
inline bool IsDifferentiated(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  // There is one level of tangents; functorch wraps the others.
  return (c10::GradMode::is_enabled() && tensor.requires_grad()) ||
         tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_DIFFERENTIATED_H_
