// Registers three kinds of kernels: those that never become a node of a graph,
// the kernel of composites that are captured whole, and those that split
// operators as the CPU does where PyTorch's own composites would split them
// otherwise. Each Register function returns the qualified names
// ("aten::set_.source_Tensor") that it registered.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <set>
#include <string>

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

// Returns whether autocast casts the parts of a composite. For a composite that
// is itself on autocast's lists, autocast has already ended.
inline bool CastsParts() {
  return at::autocast::is_autocast_enabled(at::kPrivateUse1);
}

// Captures a composite whole, or splits a call for which a worker would compute
// something else. Some composites choose an execution path by whether tensors
// require a gradient, even if none is recorded, or by the program's settings,
// and a worker knows neither.
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

// Registers the typed kernels at PrivateUse1: those that create tensors and
// views, move bytes, or answer questions about a tensor.
std::set<std::string> RegisterNativeKernels(torch::Library* library);

// Registers `_fused_sdp_choice`, so that scaled dot product attention, where it
// is split, chooses between the fused kernel and the plain formula as the CPU
// does. The CPU chooses by the operands' metadata and by the program's
// settings.
std::set<std::string> RegisterAttentionChoice(torch::Library* library);

// Registers at AutogradPrivateUse1 the splits of the recurrent networks that
// are otherwise captured whole. They apply where a gradient or autocast needs
// the parts, and they split as the CPU does: for other devices, PyTorch's own
// composites compute other input products and fused cells.
//
// The CPU trains a float32 LSTM with oneDNN, whose workspace only the worker
// could know. The split's numbers are close to the CPU's, but their bits
// differ.
std::set<std::string> RegisterRecurrentSplits(torch::Library* autograd);

// Registers, for both keys, the recurrent networks over packed sequences. They
// are always split, because the sequences' lengths are on the CPU.
std::set<std::string> RegisterPackedNetworks(torch::Library* backend,
                                             torch::Library* autograd);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
