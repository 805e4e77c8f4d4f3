// The tensors in an argument of an operator, whatever kind of argument it is.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_TENSORS_OF_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_TENSORS_OF_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace djinn::capture {

// Calls `visit(const at::Tensor&)` for each that is defined: one, a list's, or
// those among a list's elements.
template <typename Visitor>
void ForEachTensor(const c10::IValue& value, Visitor&& visit) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) visit(tensor);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (tensor.defined()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) {
        visit(element.toTensor());
      }
    }
  }
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_TENSORS_OF_H_
