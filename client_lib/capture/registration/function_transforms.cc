#include "client_lib/capture/registration/function_transforms.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <utility>

#include "client_lib/capture/device/backend.h"

namespace djinn::capture {
namespace {

constexpr auto kFront = c10::DispatchKey::FuncTorchDynamicLayerFrontMode;

// Computes aten::dropout within a transform. PyTorch's kernel calls the fused
// operator on devices other than the CPU. This one takes the steps that
// PyTorch's takes on the CPU.
class DropoutKernel : public c10::OperatorKernel {
 public:
  explicit DropoutKernel(c10::SafeKernelFunction original)
      : original_(std::move(original)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const at::Tensor input = torch::jit::peek(*stack, 0, 3).toTensor();
    const double p = torch::jit::peek(*stack, 1, 3).toDouble();
    const bool trains = torch::jit::peek(*stack, 2, 3).toBool();
    const bool fuses = trains && p > 0 && p < 1 && input.numel() > 0;
    if (!fuses || !input.device().is_privateuseone()) {
      original_.callBoxed(op, keys, stack);
      return;
    }
    const at::Tensor shape =
        at::empty({}, input.options()).expand(input.sizes());
    at::Tensor noise = at::bernoulli(shape, 1 - p);
    noise.div_(1 - p);
    torch::jit::drop(*stack, 3);
    torch::jit::push(*stack, input.mul(noise));
  }

 private:
  const c10::SafeKernelFunction original_;
};

// Drops the warning that a kernel replaces another one.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

void RegisterFunctionTransforms() {
  c10::SafeKernelFunction original =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("aten::dropout", "")
          .getComputedKernelForDispatchKey(kFront);
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                               kFront, __FILE__, __LINE__))
      .impl("dropout",
            torch::CppFunction::makeFromBoxedFunctor(
                std::make_unique<DropoutKernel>(std::move(original))));
}

}  // namespace djinn::capture
