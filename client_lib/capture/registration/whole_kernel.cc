#include "client_lib/capture/registration/whole_kernel.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <string>

#include "client_lib/capture/kernel/capture_kernel.h"

namespace djinn::capture {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Returns whether the CPU would fold the larger operand of a product into one
// matrix, by a copy if necessary, because the smaller one requires a gradient.
bool FoldsOtherwise(const at::Tensor& first, const at::Tensor& second) {
  const bool first_is_larger = first.dim() >= second.dim();
  const at::Tensor& larger = first_is_larger ? first : second;
  const at::Tensor& smaller = first_is_larger ? second : first;
  if (larger.dim() < 3 || smaller.dim() > 2 || !smaller.requires_grad()) {
    return false;
  }
  // Folding takes no copy here, so the CPU folds in any case.
  return !(first_is_larger && larger.is_contiguous());
}

bool ProductDiffers(Arguments arguments) {
  return FoldsOtherwise(arguments[0].toTensor(), arguments[1].toTensor());
}

bool AttentionDiffers(Arguments arguments) {
  constexpr size_t kMask = 3;
  const at::Context& context = at::globalContext();
  return !context.userEnabledFlashSDP() || !context.userEnabledMathSDP() ||
         (arguments[kMask].isTensor() &&
          arguments[kMask].toTensor().requires_grad());
}

}  // namespace

WholeKernel::WholeKernel(const OperatorInfo* info)
    : info_(info), chooses_otherwise_([&]() -> Predicate {
        // A weight of linear has as many elements when it is transposed.
        if (info->name == "aten::matmul" || info->name == "aten::linear") {
          return &ProductDiffers;
        }
        if (info->name == "aten::scaled_dot_product_attention") {
          return &AttentionDiffers;
        }
        return nullptr;
      }()) {}

void WholeKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                             torch::jit::Stack* stack) {
  const size_t count = info_->arguments.size();
  const Arguments arguments(stack->data() + (stack->size() - count), count);
  if (chooses_otherwise_ != nullptr && chooses_otherwise_(arguments)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd,
                               *stack);
  } else {
    CaptureCall(*info_, stack);
  }
}

}  // namespace djinn::capture
