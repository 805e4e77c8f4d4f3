#include "client_lib/capture/outputs/output_checks.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace djinn::capture {

namespace {

void CheckSharing(Sharing allowed, const at::Tensor& written,
                  const at::Tensor& read) {
  if (!read.defined()) return;
  if (allowed == Sharing::kNothing) {
    at::assert_no_overlap(written, read);
  } else if (allowed == Sharing::kAllOrNothing) {
    at::assert_no_partial_overlap(written, read);
  }
}

// index_put_() of a single value may be computed by masked_fill_(), which reads
// the value first.
bool IsReadFirst(const OperatorInfo& info, const at::Tensor& tensor) {
  return absl::StartsWith(info.name, "aten::index_put") && tensor.numel() == 1;
}

// Returns whether tril_() and triu_() write to the batch itself and not to a
// copy.
bool IsWrittenInPlace(const at::Tensor& tensor) {
  if (tensor.dim() <= 3 || tensor.is_contiguous()) return true;
  int64_t stride = tensor.size(-1) * tensor.size(-2);
  for (int64_t i = tensor.dim() - 3; i >= 0; --i) {
    const bool skipped =
        i == 0 && (tensor.stride(i) == 0 || tensor.size(i) == 1);
    if (!skipped && tensor.stride(i) != stride) return false;
    stride *= tensor.size(i);
  }
  return true;
}

// Returns whether the matrices of a batch are evenly spaced.
bool HasEvenSteps(const at::Tensor& tensor) {
  if (tensor.dim() <= 3) return true;
  int64_t stride = std::max<int64_t>(tensor.stride(-3), 1);
  for (int64_t i = tensor.dim() - 3; i >= 0; --i) {
    if (tensor.size(i) > 1 && tensor.stride(i) != stride) return false;
    stride *= tensor.size(i);
  }
  return true;
}

bool IsTriangle(const OperatorInfo& info) {
  const absl::string_view name = info.handle.schema().name();
  return name == "aten::tril" || name == "aten::tril_" ||
         name == "aten::triu" || name == "aten::triu_";
}

void CheckTriangle(const at::Tensor& self, const at::Tensor& written) {
  if (written.numel() == 0) return;
  if (written.is_same(self)) {
    if (!IsWrittenInPlace(self)) at::assert_no_internal_overlap(self);
    return;
  }
  at::assert_no_internal_overlap(written);
  // PyTorch would write out of bounds.
  TORCH_CHECK(
      HasEvenSteps(written),
      "unsupported operation: the matrices of the written-to tensor are "
      "not evenly spaced in memory. Please clone() the tensor before "
      "performing the operation.");
}

}  // namespace

void CheckOverlap(const OperatorInfo& info,
                  c10::ArrayRef<c10::IValue> arguments) {
  const OutputRules& rules = info.output_rules;
  if (rules.sharing.empty()) return;
  if (IsTriangle(info)) {
    CheckTriangle(arguments[0].toTensor(),
                  arguments[info.is_out ? 2 : 0].toTensor());
    return;
  }
  if (rules.leaves_integers || rules.leaves_reals) {
    const c10::ScalarType type = arguments[0].toTensor().scalar_type();
    if (rules.leaves_reals ? !c10::isComplexType(type)
                           : c10::isIntegralType(type, /*includeBool=*/true)) {
      return;
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].access == kReads || !arguments[i].isTensor()) {
      continue;
    }
    const at::Tensor& written = arguments[i].toTensor();
    if (rules.distinct_elements) at::assert_no_internal_overlap(written);
    for (size_t k = 0; k < arguments.size(); ++k) {
      if (k == i) continue;
      const c10::IValue& read = arguments[k];
      if (read.isTensor() && !IsReadFirst(info, read.toTensor())) {
        CheckSharing(rules.sharing[k], written, read.toTensor());
      } else if (read.isList()) {
        for (const c10::IValue& element : read.toListRef()) {
          if (!element.isTensor()) continue;
          CheckSharing(rules.sharing[k], written, element.toTensor());
        }
      }
    }
  }
}

void CheckOut(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
              const at::Tensor& out, const ResultMeta& result) {
  const c10::ScalarType type = out.scalar_type();
  if (info.output_rules.truth) {
    TORCH_CHECK(type == c10::ScalarType::Bool || type == c10::ScalarType::Byte,
                info.handle.schema().name().substr(sizeof("aten::") - 1),
                " only supports bool tensor for result, got: ", type);
    return;
  }
  // Only abs() has a real result that a complex output accepts.
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

void CheckInPlace(const OperatorInfo& info, const at::Tensor& self,
                  const ResultMeta& result) {
  TORCH_CHECK(self.sizes() == c10::IntArrayRef(result.sizes),
              "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ",
              c10::IntArrayRef(result.sizes));
  TORCH_CHECK(info.output_rules.own_type ||
                  c10::canCast(result.dtype, self.scalar_type()),
              "result type ", result.dtype,
              " can't be cast to the desired output type ", self.scalar_type());
}

}  // namespace djinn::capture
