#include "client_lib/shape/type_promotion.h"

#include "c10/core/DefaultDtype.h"
#include "c10/util/Exception.h"

namespace djinn {

c10::ScalarType FloatingOrDefault(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true)
             ? c10::get_default_dtype_as_scalartype()
             : dtype;
}

c10::ScalarType SumType(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true)
             ? c10::ScalarType::Long
             : dtype;
}

void CheckFloating(const char* op, const at::Tensor& tensor, bool complex_too) {
  const c10::ScalarType dtype = tensor.scalar_type();
  TORCH_CHECK(
      c10::isFloatingType(dtype) || (complex_too && c10::isComplexType(dtype)),
      "\"", op, "\" not implemented for '", c10::toString(dtype), "'");
}

void CheckSameType(const char* op, c10::ArrayRef<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(
        !tensor.defined() || tensor.scalar_type() == tensors[0].scalar_type(),
        op, ": expected ", c10::toString(tensors[0].scalar_type()),
        " but found ", c10::toString(tensor.scalar_type()));
  }
}

}  // namespace djinn
