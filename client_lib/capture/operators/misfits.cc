#include "client_lib/capture/operators/misfits.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>

#include <exception>

#include "client_lib/capture/operators/tensors_of.h"

namespace djinn::capture {
namespace {

// Fits every type, which is nearly always so and soon found out.
bool IsSmall(const c10::Scalar& number) {
  constexpr int8_t kMost = 127;  // of the smallest type
  if (number.isBoolean()) return true;
  if (number.isFloatingPoint()) {
    const double value = number.toDouble();
    return value >= 0 && value <= kMost;
  }
  if (number.isComplex()) return false;
  // Every integer that is not negative counts as unsigned.
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

}  // namespace

void CheckFits(c10::ScalarType type, const c10::Scalar& number) {
  AT_DISPATCH_V2(type, "fill", AT_WRAP([&] { (void)number.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), c10::kBool, c10::kHalf,
                 c10::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 c10::kComplexHalf, AT_EXPAND(AT_FLOAT8_TYPES));
}

void AppendMisfits(const OperatorInfo& info,
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
      ForEachTensor(arguments[k], [&](const at::Tensor& tensor) {
        if (Fits(tensor.scalar_type(), number)) return;
        key->push_back(static_cast<char>(i));
        key->push_back(static_cast<char>(k));
      });
    }
  }
}

}  // namespace djinn::capture
