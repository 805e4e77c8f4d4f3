// Arguments and results of a call as the dispatcher's boxed kernels have them.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_BOXED_CALL_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_BOXED_CALL_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <vector>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

using Arguments = c10::ArrayRef<c10::IValue>;

// Those on top of the stack. Valid until it changes.
inline Arguments ArgumentsOf(const OperatorInfo& info,
                             const torch::jit::Stack& stack) {
  const size_t count = info.arguments.size();
  return Arguments(stack.data() + (stack.size() - count), count);
}

// Replaces the last `count` values of the stack.
void Replace(torch::jit::Stack* stack, size_t count,
             std::vector<c10::IValue> results);

// What an operator returns that hands back arguments it wrote.
std::vector<c10::IValue> ReturnedArguments(const OperatorInfo& info,
                                           Arguments arguments);

// Packs tensors into returns, lists as lists.
std::vector<c10::IValue> PackReturns(const OperatorInfo& info,
                                     const std::vector<size_t>& lengths,
                                     std::vector<at::Tensor> tensors);

// The arguments of the functional form of an operator that writes.
std::vector<c10::IValue> FunctionalArguments(const OperatorInfo& info,
                                             Arguments arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_BOXED_CALL_H_
