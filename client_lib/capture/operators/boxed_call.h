// Helpers for the arguments and results of a call on the dispatcher's stack.
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

// Returns the arguments on top of the stack. They are valid until it changes.
inline Arguments ArgumentsOf(const OperatorInfo& info,
                             const torch::jit::Stack& stack) {
  const size_t count = info.arguments.size();
  return Arguments(stack.data() + (stack.size() - count), count);
}

// Replaces the last `count` values of the stack.
void Replace(torch::jit::Stack* stack, size_t count,
             std::vector<c10::IValue> results);

// Returns the results of an operator that returns arguments that it wrote.
std::vector<c10::IValue> ReturnedArguments(const OperatorInfo& info,
                                           Arguments arguments);

// Packs `tensors` into returns. `lengths` holds the number of tensors in each
// return: 1 for a return that is not a list.
std::vector<c10::IValue> PackReturns(const OperatorInfo& info,
                                     const std::vector<size_t>& lengths,
                                     std::vector<at::Tensor> tensors);

// Returns the arguments for info.functional of a call of `info`.
std::vector<c10::IValue> FunctionalArguments(const OperatorInfo& info,
                                             Arguments arguments);

// Calls `visit(const at::Tensor&)` for each tensor in an argument: the argument
// itself, or the elements of a list. Tensors may be undefined.
template <typename Visitor>
void ForEachTensor(const c10::IValue& value, Visitor&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

// Calls `visit` as above, but for defined tensors only.
template <typename Visitor>
void ForEachDefinedTensor(const c10::IValue& value, Visitor&& visit) {
  ForEachTensor(value, [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  });
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_BOXED_CALL_H_
