#include "client_lib/capture/outputs/written_outputs.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/operators/boxed_call.h"
#include "client_lib/capture/outputs/cpu_trial.h"
#include "client_lib/shape/stride_inference.h"

namespace djinn::capture {
namespace {

using Outcome = InferredResults::Outcome;

class WrittenOutputs {
 public:
  WrittenOutputs(const OperatorInfo& info, torch::jit::Stack* stack,
                 CaptureFunction capture)
      : info_(info), stack_(stack), capture_(capture) {}

  bool Prepare() {
    if (info_.is_out) types_fit_ = TryOutputsOnCpu(info_, arguments());
    if (info_.output_rules.elementwise) CheckOverlap(info_, arguments());
    if (info_.functional != nullptr) {
      if (!CheckAgainstFunctional()) return false;
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          !info_.is_out, info_.name,
          " has no functional counterpart from which its result's shape could "
          "be inferred");
    }
    if (!info_.output_rules.elementwise || CopiesIntegers()) {
      CheckOverlap(info_, arguments());
    }
    return true;
  }

 private:
  Arguments arguments() const { return ArgumentsOf(info_, *stack_); }

  bool CopiesIntegers() const {
    return info_.output_rules.copies_integers &&
           c10::isIntegralType(arguments()[0].toTensor().scalar_type(),
                               /*includeBool=*/true);
  }

  // Infers the results of the functional form, which raises PyTorch's errors
  // and gives the sizes of out= arguments. Returns false if the functional form
  // has computed the results, because only it could find them.
  bool CheckAgainstFunctional() {
    const std::vector<at::Tensor> written = Written();
    const std::vector<c10::IValue> inputs =
        FunctionalArguments(info_, arguments());
    const InferredResults inferred = InferAndLog(*info_.functional, inputs);
    const bool not_executed = inferred.outcome == Outcome::kUnknown ||
                              inferred.outcome == Outcome::kCastParts ||
                              AwaitsOutcome(*info_.functional, inputs);
    if (not_executed && info_.is_out) {
      RunThroughFunctional(inputs, written);
      return false;
    }
    if (not_executed || inferred.results.size() != written.size()) {
      return true;
    }
    if (SizesOutputItself(inferred, written)) {
      for (size_t i = 0; i < written.size(); ++i) {
        CheckOut(info_, arguments(), written[i], inferred.results[i],
                 types_fit_);
      }
      RunThroughFunctional(inputs, written);
      return false;
    }
    const bool laid_out = info_.output_rules.laid_out;
    for (size_t i = 0; i < written.size(); ++i) {
      const ResultMeta& result = inferred.results[i];
      if (!result.defined) continue;
      if (!info_.is_out) {
        CheckInPlace(info_, written[i], result);
      } else if (inferred.outcome == Outcome::kViews) {
        // An operator whose functional form returns a view copies to its
        // output.
        PrepareOut(written[i], EmptyLike(result.dtype, result), laid_out);
      } else {
        PrepareOut(written[i], result, laid_out);
      }
    }
    return true;
  }

  // Returns whether the kernel would size an output itself. Such a kernel
  // computes in the order of its operands' memory, which affects the last bits,
  // and its output could share their memory. The functional form gives the same
  // bits, and its result is copied to the output.
  bool SizesOutputItself(const InferredResults& inferred,
                         const std::vector<at::Tensor>& written) const {
    if (!info_.is_out || !info_.output_rules.elementwise || Generated() ||
        CopiesIntegers() || inferred.outcome != Outcome::kKnown) {
      return false;
    }
    for (size_t i = 0; i < written.size(); ++i) {
      if (inferred.results[i].defined &&
          written[i].sizes() != c10::IntArrayRef(inferred.results[i].sizes)) {
        return true;
      }
    }
    return false;
  }

  // Returns whether PyTorch generated the operator from its functional form.
  // Such an operator resizes its outputs first, does not convert its result,
  // and does not keep its strides.
  bool Generated() const { return info_.handle.hasTag(at::Tag::generated); }

  // Returns the written tensors, in the order of the functional form's results.
  std::vector<at::Tensor> Written() const {
    std::vector<at::Tensor> written;
    for (size_t i = 0; i < info_.arguments.size(); ++i) {
      const ArgumentInfo& argument = info_.arguments[i];
      if (argument.access == kReads || argument.is_out != info_.is_out) {
        continue;
      }
      const c10::IValue& value = arguments()[i];
      if (value.isTensor()) {
        written.push_back(value.toTensor());
      } else if (argument.is_out) {
        for (const at::Tensor& tensor : value.toTensorList()) {
          written.push_back(tensor);
        }
      }
    }
    return written;
  }

  // Checks and resizes an output. If `laid_out`, a resized output gets the
  // result's strides.
  void PrepareOut(const at::Tensor& out, const ResultMeta& result,
                  bool laid_out) {
    const OutputRules& rules = info_.output_rules;
    if (rules.counts_elements && out.numel() == NumElements(result)) return;
    if (Generated() && !rules.truth) {
      ResizeOut(out, result.sizes);
      TORCH_CHECK(out.scalar_type() == result.dtype,
                  "Expected out tensor to have dtype ",
                  c10::scalarTypeToTypeMeta(result.dtype), ", but got ",
                  out.dtype(), " instead");
      return;
    }
    CheckOut(info_, arguments(), out, result, types_fit_);
    if (ResizeOut(out, result.sizes) && laid_out) {
      // Strides with gaps need more memory than the elements.
      const auto extent = static_cast<int64_t>(
          at::detail::computeStorageNbytes(result.sizes, result.strides, 1));
      if (extent > out.numel()) out.resize_({extent});
      out.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes,
                                                       result.strides);
    }
  }

  // Returns whether the output had another size.
  static bool ResizeOut(const at::Tensor& out, const c10::DimVector& sizes) {
    // Warns if the output has elements.
    if (!at::native::resize_output_check(out, sizes)) return false;
    out.resize_(sizes);
    return true;
  }

  void RunThroughFunctional(const std::vector<c10::IValue>& inputs,
                            const std::vector<at::Tensor>& written) {
    torch::jit::Stack functional(inputs.begin(), inputs.end());
    if (info_.functional->is_split) {
      info_.functional->handle.callBoxed(functional);
    } else {
      capture_(*info_.functional, &functional);
    }
    std::vector<c10::IValue> returned = ReturnedArguments(info_, arguments());
    for (size_t i = 0; i < written.size(); ++i) {
      const at::Tensor result = functional[i].toTensor();
      PrepareOut(written[i], Describe(result), /*laid_out=*/true);
      written[i].copy_(result);
    }
    Replace(stack_, info_.arguments.size(), std::move(returned));
  }

  const OperatorInfo& info_;
  torch::jit::Stack* const stack_;
  const CaptureFunction capture_;
  // True if the CPU takes outputs of these dtypes.
  bool types_fit_ = false;
};

void CheckSharing(Sharing allowed, const at::Tensor& written,
                  const at::Tensor& read) {
  if (!read.defined()) return;
  if (allowed == Sharing::kNothing) {
    at::assert_no_overlap(written, read);
  } else if (allowed == Sharing::kAllOrNothing) {
    at::assert_no_partial_overlap(written, read);
  }
}

// Returns whether the operator may read the tensor before writing it. PyTorch
// may compute index_put_() of a single value by masked_fill_(), which reads the
// value first.
bool IsReadFirst(const OperatorInfo& info, const at::Tensor& tensor) {
  return absl::StartsWith(info.name, "aten::index_put") && tensor.numel() == 1;
}

// Returns whether tril_() and triu_() write to the batch itself, not to a copy
// of it.
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

bool PrepareOutputs(const OperatorInfo& info, torch::jit::Stack* stack,
                    CaptureFunction capture) {
  return WrittenOutputs(info, stack, capture).Prepare();
}

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
              const at::Tensor& out, const ResultMeta& result, bool type_fits) {
  const c10::ScalarType type = out.scalar_type();
  if (info.output_rules.truth) {
    TORCH_CHECK(type == c10::ScalarType::Bool || type == c10::ScalarType::Byte,
                info.handle.schema().name().substr(sizeof("aten::") - 1),
                " only supports bool tensor for result, got: ", type);
    return;
  }
  if (!type_fits) {
    // Only abs() has a real result that a complex output accepts.
    const bool widens =
        c10::isComplexType(type) && !c10::isComplexType(result.dtype);
    TORCH_CHECK(!info.output_rules.exact_type || type == result.dtype || widens,
                "Found dtype ", type, " but expected ", result.dtype);
    TORCH_CHECK(c10::canCast(result.dtype, type), "result type ", result.dtype,
                " can't be cast to the desired output type ", type);
  }
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
