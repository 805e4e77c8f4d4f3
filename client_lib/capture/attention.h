// Scaled dot product attention. The CPU takes its fused kernel, or the plain
// formula, by what the operands look like and by what the program asked for;
// the program gets the one that the CPU would take.
#ifndef CLIENT_LIB_CAPTURE_ATTENTION_H_
#define CLIENT_LIB_CAPTURE_ATTENTION_H_

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <set>
#include <string>

#include "client_lib/capture/operator_info.h"

namespace djinn::capture {

// Lets PyTorch's composite, where it is split, choose as on the CPU, and
// registers `_fused_sdp_choice` in a library of namespace aten; returns its
// qualified name.
std::set<std::string> RegisterAttentionChoice(torch::Library* library);

// Captures the call whole if a worker, which sees neither the program's
// settings nor which tensors require a gradient, would choose the same kernel;
// splits it otherwise.
class AttentionKernel : public c10::OperatorKernel {
 public:
  // `info` lives for ever.
  explicit AttentionKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack);

 private:
  const OperatorInfo* const info_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_ATTENTION_H_
