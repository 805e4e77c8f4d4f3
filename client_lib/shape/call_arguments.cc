#include "client_lib/shape/call_arguments.h"

namespace djinn {

c10::DimVector CallArguments::Integers(size_t index) const {
  c10::DimVector result;
  if (!Has(index)) return result;
  if (values_[index].isInt()) {
    result.push_back(values_[index].toInt());
    return result;
  }
  for (const c10::IValue& element : values_[index].toListRef()) {
    result.push_back(element.toSymInt().expect_int());
  }
  return result;
}

std::vector<bool> CallArguments::Booleans(size_t index) const {
  std::vector<bool> result;
  for (const c10::IValue& element : values_[index].toListRef()) {
    result.push_back(element.toBool());
  }
  return result;
}

std::vector<at::Tensor> CallArguments::Tensors(size_t index) const {
  std::vector<at::Tensor> result;
  if (!Has(index)) return result;
  for (const c10::IValue& element : values_[index].toListRef()) {
    result.push_back(element.isNone() ? at::Tensor() : element.toTensor());
  }
  return result;
}

}  // namespace djinn
