// Reads the arguments of one boxed call by position, in the types that shape
// rules need.
#ifndef CLIENT_LIB_SHAPE_CALL_ARGUMENTS_H_
#define CLIENT_LIB_SHAPE_CALL_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "c10/core/Scalar.h"
#include "c10/core/ScalarType.h"
#include "c10/util/ArrayRef.h"
#include "c10/util/DimVector.h"

namespace djinn {

// Refers to the values, which must outlive it. Reading a value in a type that
// it does not have throws c10::Error.
class CallArguments {
 public:
  explicit CallArguments(c10::ArrayRef<c10::IValue> values) : values_(values) {}

  // Returns whether the argument is neither None nor an undefined tensor.
  bool Has(size_t index) const {
    const c10::IValue& value = values_[index];
    return !value.isNone() &&
           !(value.isTensor() && !value.toTensor().defined());
  }

  const at::Tensor& Tensor(size_t index) const {
    return values_[index].toTensor();
  }
  int64_t Integer(size_t index) const {
    return values_[index].toSymInt().expect_int();
  }
  bool Boolean(size_t index) const { return values_[index].toBool(); }
  double Real(size_t index) const { return values_[index].toDouble(); }
  c10::Scalar Scalar(size_t index) const { return values_[index].toScalar(); }
  std::string Text(size_t index) const { return values_[index].toStringRef(); }

  std::optional<c10::ScalarType> DtypeIfAny(size_t index) const {
    if (!Has(index)) return std::nullopt;
    return values_[index].toScalarType();
  }
  c10::ScalarType DtypeOr(size_t index, c10::ScalarType absent) const {
    return DtypeIfAny(index).value_or(absent);
  }

  c10::ArrayRef<c10::IValue> List(size_t index) const {
    return values_[index].toListRef();
  }
  // Returns an empty list if the argument is None.
  c10::DimVector Integers(size_t index) const;
  std::vector<bool> Booleans(size_t index) const;
  // Returns the elements of a Tensor[] or Tensor?[]. An element that is None
  // becomes an undefined tensor.
  std::vector<at::Tensor> Tensors(size_t index) const;

 private:
  const c10::ArrayRef<c10::IValue> values_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_CALL_ARGUMENTS_H_
