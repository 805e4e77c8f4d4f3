// aten::histc of whole numbers, which PyTorch's CUDA kernel counts and its CPU
// kernel refuses: programs ask for it on every device but the CPU, as
// transformers' experts do. Counted as doubles, exactly.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_HISTOGRAM_KERNEL_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_HISTOGRAM_KERNEL_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "client_lib/capture/kernel/capture_kernel.h"

namespace djinn::capture {

class HistogramKernel : public c10::OperatorKernel {
 public:
  // `info`, of aten::histc, lives for ever.
  explicit HistogramKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
    c10::IValue& counted = torch::jit::peek(*stack, 0, 4);
    const c10::ScalarType type = counted.toTensor().scalar_type();
    if (!c10::isIntegralType(type, /*includeBool=*/false)) {
      CaptureCall(*info_, stack);
      return;
    }
    counted = counted.toTensor().to(c10::kDouble);
    CaptureCall(*info_, stack);
    stack->back() = stack->back().toTensor().to(type);
  }

 private:
  const OperatorInfo* const info_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_HISTOGRAM_KERNEL_H_
