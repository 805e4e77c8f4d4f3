#include "client_lib/capture/operators/equal_scalars.h"

#include <cstring>

namespace djinn::capture {
namespace {

// Bit for bit: of zeros, signs count.
bool AreSame(double x, double y) { return std::memcmp(&x, &y, sizeof(x)) == 0; }

}  // namespace

const OperatorInfo& SayOnce(const OperatorInfo& info,
                            torch::jit::Stack* stack) {
  if (info.with_one_scalar == nullptr) return info;
  const c10::IValue& numbers = stack->back();
  const c10::IValue& tensors = (*stack)[stack->size() - info.arguments.size()];
  if (!numbers.isList() || !tensors.isTensorList()) return info;
  const c10::ArrayRef<c10::IValue> list = numbers.toListRef();
  // Of lists that do not fit each other the operator itself complains.
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
