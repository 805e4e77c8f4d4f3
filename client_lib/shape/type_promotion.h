// PyTorch's type promotion over tensors and scalars.
#ifndef CLIENT_LIB_SHAPE_TYPE_PROMOTION_H_
#define CLIENT_LIB_SHAPE_TYPE_PROMOTION_H_

#include "ATen/core/Tensor.h"
#include "ATen/native/TypeProperties.h"
#include "c10/core/Scalar.h"
#include "c10/core/ScalarType.h"

namespace djinn {

class TypePromotion {
 public:
  TypePromotion& Add(const at::Tensor& tensor) {
    state_ = at::native::update_result_type_state(tensor, state_);
    return *this;
  }
  TypePromotion& Add(const c10::Scalar& scalar) {
    state_ = at::native::update_result_type_state(scalar, state_);
    return *this;
  }
  c10::ScalarType Result() const { return at::native::result_type(state_); }

 private:
  at::native::ResultTypeState state_;
};

// Returns the dtype in which operators that promote integers compute.
c10::ScalarType FloatingOrDefault(c10::ScalarType dtype);

// Returns the dtype of sums and products of `dtype`.
c10::ScalarType SumType(c10::ScalarType dtype);

// Throws if the tensor is not floating-point. If `complex_too`, it may also be
// complex. Kernels that support no other dtypes throw in the same way.
void CheckFloating(const char* op, const at::Tensor& tensor,
                   bool complex_too = false);

// Throws unless all defined tensors have the dtype of the first one.
void CheckSameType(const char* op, c10::ArrayRef<at::Tensor> tensors);

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_TYPE_PROMOTION_H_
