#include "client_lib/capture/output_checks.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/Scalar.h>

namespace djinn::capture {

void CheckOverlap(const OperatorInfo& info,
                  c10::ArrayRef<c10::IValue> arguments) {
  if (!info.output_rules.no_overlap) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].access == kReads || !arguments[i].isTensor()) {
      continue;
    }
    const at::Tensor& written = arguments[i].toTensor();
    at::assert_no_internal_overlap(written);
    for (size_t k = 0; k < arguments.size(); ++k) {
      if (k == i || !arguments[k].isTensor()) continue;
      const at::Tensor& other = arguments[k].toTensor();
      if (other.defined()) at::assert_no_partial_overlap(written, other);
    }
  }
}

void CheckOut(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
              const at::Tensor& out, const ResultMeta& result) {
  const c10::ScalarType type = out.scalar_type();
  // abs() alone gives a real result that a complex output takes.
  const bool widens =
      c10::isComplexType(type) && !c10::isComplexType(result.dtype);
  TORCH_CHECK(!info.output_rules.exact_type || type == result.dtype || widens,
              "Found dtype ", type, " but expected ", result.dtype);
  TORCH_CHECK(c10::canCast(result.dtype, type), "result type ", result.dtype,
              " can't be cast to the desired output type ", type);
  if (!info.output_rules.elementwise) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].is_out || !arguments[i].isTensor()) continue;
    TORCH_CHECK(!arguments[i].toTensor().is_same(out) ||
                    out.sizes() == c10::IntArrayRef(result.sizes),
                "output with shape ", out.sizes(),
                " doesn't match the broadcast shape ",
                c10::IntArrayRef(result.sizes));
  }
}

void CheckFits(const c10::IValue& tensor, const c10::IValue& number) {
  const c10::Scalar value = number.toScalar();
  AT_DISPATCH_V2(tensor.toTensor().scalar_type(), "fill",
                 AT_WRAP([&] { (void)value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), c10::kBool, c10::kHalf,
                 c10::kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 c10::kComplexHalf, AT_EXPAND(AT_FLOAT8_TYPES));
}

}  // namespace djinn::capture
