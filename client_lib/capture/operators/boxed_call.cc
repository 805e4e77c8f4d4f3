#include "client_lib/capture/operators/boxed_call.h"

#include <utility>

namespace djinn::capture {

void Replace(torch::jit::Stack* stack, size_t count,
             std::vector<c10::IValue> results) {
  stack->resize(stack->size() - count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

std::vector<c10::IValue> ReturnedArguments(const OperatorInfo& info,
                                           Arguments arguments) {
  std::vector<c10::IValue> results;
  for (const int source : info.returned_arguments) {
    results.push_back(arguments[source]);
  }
  return results;
}

std::vector<c10::IValue> PackReturns(const OperatorInfo& info,
                                     const std::vector<size_t>& lengths,
                                     std::vector<at::Tensor> tensors) {
  std::vector<c10::IValue> returns;
  size_t next = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (!info.returns_list[i]) {
      returns.emplace_back(std::move(tensors[next++]));
      continue;
    }
    c10::List<at::Tensor> list;
    for (size_t k = 0; k < lengths[i]; ++k) {
      list.push_back(std::move(tensors[next++]));
    }
    returns.emplace_back(std::move(list));
  }
  return returns;
}

std::vector<c10::IValue> FunctionalArguments(const OperatorInfo& info,
                                             Arguments arguments) {
  std::vector<c10::IValue> inputs;
  const at::Tensor* out = nullptr;
  const int type_argument = info.output_rules.type_argument;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.arguments[i].is_out) {
      inputs.push_back(arguments[i]);
    } else if (out == nullptr && arguments[i].isTensor()) {
      out = &arguments[i].toTensor();
    }
  }
  // The outputs are the last arguments.
  if (type_argument >= 0 && out != nullptr && inputs[type_argument].isNone()) {
    inputs[type_argument] = out->scalar_type();
  }
  if (info.functional_is_factory && out != nullptr) {
    inputs.emplace_back(out->scalar_type());
    inputs.emplace_back();
    inputs.emplace_back(out->device());
    inputs.emplace_back();
  }
  return inputs;
}

}  // namespace djinn::capture
