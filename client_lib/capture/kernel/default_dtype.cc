#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_to_copy.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/operators/output_rules.h"

namespace djinn::capture {
namespace {

bool IsReal(c10::ScalarType type) {
  return c10::isFloatingType(type) || c10::isComplexType(type);
}

bool HasRealElement(const c10::IValue& list) {
  return std::ranges::any_of(list.toListRef(), [](const c10::IValue& element) {
    return element.isTensor() && element.toTensor().defined() &&
           IsReal(element.toTensor().scalar_type());
  });
}

// Returns whether the dtype of the results may be the default one. It is not if
// an operand decides it by a floating-point or complex dtype. A number beside
// tensors does not decide.
bool MayTakeDefault(const OperatorInfo& info, const c10::IValue* arguments) {
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (info.arguments[i].is_out) continue;
    // The operator writes an argument, whose dtype decides.
    if (info.arguments[i].access != kReads) return false;
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      if (tensor.defined() && IsReal(tensor.scalar_type()) &&
          !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        return false;
      }
    } else if ((argument.isTensorList() || argument.isOptionalTensorList()) &&
               HasRealElement(argument)) {
      return false;
    }
  }
  return true;
}

// Returns the dtype that the results have because of the default, or nullopt if
// the default does not affect them.
std::optional<c10::ScalarType> TypeByDefault(const OperatorInfo& info,
                                             const c10::IValue* arguments) {
  const OperatorInfo& asked =
      info.is_out && info.functional != nullptr ? *info.functional : info;
  std::vector<c10::IValue> inputs;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (&asked == &info || !info.arguments[i].is_out) {
      inputs.push_back(arguments[i]);
    }
  }
  // The functional form may be a factory, with arguments that the out= form
  // lacks.
  while (inputs.size() < asked.arguments.size()) inputs.emplace_back();
  const c10::ScalarType usual =
      c10::typeMetaToScalarType(c10::get_default_dtype());
  for (const ResultMeta& result : InferAndLog(asked, inputs).results) {
    if (result.defined && IsReal(result.dtype) &&
        c10::toRealValueType(result.dtype) == usual) {
      return result.dtype;
    }
  }
  return std::nullopt;
}

// Returns whether the kernel converts integers to the default dtype first.
bool ConvertsOperands(const OperatorInfo& info) {
  return info.handle.schema().name() == "aten::logsumexp" ||
         OutputRulesOf(info.handle).elementwise;
}

}  // namespace

void MakeDefaultDtypeExplicit(const OperatorInfo& info,
                              c10::IValue* arguments) {
  if (!MayTakeDefault(info, arguments)) return;
  // Weights that are integers are added as doubles, whatever the default is.
  if (info.name == "aten::bincount") return;
  const std::vector<c10::Argument>& schema = info.handle.schema().arguments();
  const auto dtype = std::ranges::find(schema, "dtype", &c10::Argument::name);
  c10::IValue* const named =
      dtype == schema.end() ? nullptr : arguments + (dtype - schema.begin());
  if (named != nullptr && !named->isNone()) return;
  const std::optional<c10::ScalarType> type = TypeByDefault(info, arguments);
  if (!type.has_value()) return;
  if (named != nullptr) {
    *named = c10::IValue(*type);
    return;
  }
  const bool converts = ConvertsOperands(info);
  bool converted = false;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (!converts || info.arguments[i].is_out || !arguments[i].isTensor()) {
      continue;
    }
    const at::Tensor tensor = arguments[i].toTensor();
    if (!tensor.defined() || IsReal(tensor.scalar_type()) ||
        tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      continue;
    }
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    arguments[i] = at::_to_copy(
        tensor, tensor.options().dtype(c10::toRealValueType(*type)));
    converted = true;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      converted, info.name, " would return ", *type,
      " because torch.get_default_dtype() is ",
      c10::typeMetaToScalarType(c10::get_default_dtype()),
      "; remote devices do not support this for these operands: convert them "
      "or pass a dtype");
}

}  // namespace djinn::capture
