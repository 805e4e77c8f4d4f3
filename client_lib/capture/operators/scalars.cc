#include "client_lib/capture/operators/scalars.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <exception>

#include "client_lib/capture/operators/boxed_call.h"

namespace djinn::capture {
namespace {

// Returns whether the number fits every dtype. Nearly all numbers do, and this
// test is cheap.
bool IsSmall(const c10::Scalar& number) {
  constexpr int8_t kMost = 127;  // of int8, the smallest dtype
  if (number.isBoolean()) return true;
  if (number.isFloatingPoint()) {
    const double value = number.toDouble();
    return value >= 0 && value <= kMost;
  }
  if (number.isComplex()) return false;
  // PyTorch treats every non-negative integer as unsigned.
  if (number.isUnsigned()) return number.toUInt64() <= kMost;
  return number.toLong() >= -kMost;
}

bool Fits(c10::ScalarType type, const c10::Scalar& number) {
  try {
    CheckFits(type, number);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Compares bits, so that zeros of different signs differ.
bool AreSame(double x, double y) { return std::memcmp(&x, &y, sizeof(x)) == 0; }

}  // namespace

void CheckFits(c10::ScalarType type, const c10::Scalar& number) {
  AT_DISPATCH_V2(type, "fill_cpu",
                 AT_WRAP([&] { (void)number.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), c10::kBool, c10::kHalf,
                 c10::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 c10::kComplexHalf, AT_EXPAND(AT_FLOAT8_TYPES));
}

void AppendOverflows(const OperatorInfo& info,
                     c10::ArrayRef<c10::IValue> arguments, std::string* key) {
  if (!info.takes_numbers) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].kind != ArgumentKind::kScalar ||
        !(arguments[i].isScalar() || arguments[i].isUnsigned())) {
      continue;
    }
    const c10::Scalar number = arguments[i].toScalar();
    if (IsSmall(number)) continue;
    for (size_t k = 0; k < arguments.size(); ++k) {
      ForEachDefinedTensor(arguments[k], [&](const at::Tensor& tensor) {
        if (Fits(tensor.scalar_type(), number)) return;
        key->push_back(static_cast<char>(i));
        key->push_back(static_cast<char>(k));
      });
    }
  }
}

const OperatorInfo& CollapseEqualScalars(const OperatorInfo& info,
                                         torch::jit::Stack* stack) {
  if (info.with_one_scalar == nullptr) return info;
  const c10::IValue& numbers = stack->back();
  const c10::IValue& tensors = (*stack)[stack->size() - info.arguments.size()];
  if (!numbers.isList() || !tensors.isTensorList()) return info;
  const c10::ArrayRef<c10::IValue> list = numbers.toListRef();
  // The operator itself refuses lists of different lengths.
  if (list.empty() || list.size() != tensors.toTensorList().size()) return info;
  for (const c10::IValue& number : list) {
    if (!number.isDouble() || !AreSame(number.toDouble(), list[0].toDouble())) {
      return info;
    }
  }
  stack->back() = c10::IValue(list[0].toDouble());
  return *info.with_one_scalar;
}

}  // namespace djinn::capture
