#include "client_lib/capture/inference/shape_inference.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/shape_only.h"
#include "client_lib/capture/operators/boxed_call.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn::capture {
namespace {

ResultMeta MetaOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return {.defined = false, .dtype = at::kFloat};
  return {.defined = true,
          .dtype = tensor.scalar_type(),
          .sizes = c10::DimVector(tensor.sizes()),
          .strides = c10::DimVector(tensor.strides())};
}

// Returns the number of tensors in each return of an operator whose rule gave
// `total` tensors. At most one return can be a list; all tensors beyond the
// other returns belong to it.
std::vector<size_t> LengthsOf(const OperatorInfo& info, size_t total) {
  std::vector<size_t> lengths;
  size_t single = 0;
  for (const bool is_list : info.returns_list) single += is_list ? 0 : 1;
  for (const bool is_list : info.returns_list) {
    lengths.push_back(is_list ? total - single : 1);
  }
  return lengths;
}

// Returns whether a number with this argument's name takes part in type
// promotion. Other numbers, such as `alpha`, are converted to the common type.
bool IsOperand(const c10::Argument& argument) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "exponent", "max", "min", "other", "self"};
  return names->contains(argument.name());
}

// Returns whether the CPU may first copy an operand of this elementwise
// operator. The CPU's kernels copy operands whose dtype is not the common one.
// The copy has a stride for every dimension, even where the operand is
// expanded, and the strides of the result follow the copy. PyTorch's meta
// functions for another device do not copy.
bool MayBeCopied(const OperatorInfo& info, const torch::jit::Stack& arguments) {
  return info.structured() &&
         (info.handle.hasTag(at::Tag::pointwise) ||
          info.name == "aten::mse_loss" ||
          info.name == "aten::smooth_l1_loss") &&
         absl::c_any_of(arguments, [](const c10::IValue& argument) {
           return argument.isTensor() && argument.toTensor().defined() &&
                  !argument.toTensor().is_non_overlapping_and_dense();
         });
}

// Returns the common dtype of the operands.
c10::ScalarType CommonType(const OperatorInfo& info,
                           const torch::jit::Stack& arguments) {
  TypePromotion promotion;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isScalar()) {
      if (IsOperand(info.handle.schema().arguments()[i])) {
        promotion.Add(argument.toScalar());
      }
    } else if (argument.isTensor() && argument.toTensor().defined()) {
      promotion.Add(argument.toTensor());
    }
  }
  return promotion.Result();
}

void CopyAsCpu(c10::ScalarType common, torch::jit::Stack* arguments) {
  for (c10::IValue& argument : *arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& tensor = argument.toTensor();
    if (tensor.scalar_type() == common || !IsRemote(tensor)) continue;
    const ResultMeta copy = EmptyLike(tensor.scalar_type(), tensor);
    argument = NewRemoteTensor(nullptr, copy.sizes, copy.strides, copy.dtype);
  }
}

// Runs the operator's meta function or composite on tensors without data.
void Reenter(const OperatorInfo& info, torch::jit::Stack* stack) {
  ShapeOnlyScope scope(info.structured());
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!MayBeCopied(info, *stack)) {
    info.handle.callBoxedForDispatchKey(info.reentry, *stack);
    return;
  }
  c10::ScalarType common = CommonType(info, *stack);
  if (c10::isIntegralType(common, /*includeBool=*/true)) {
    // The common dtype is an integer here, but many operators compute integers
    // in floating point. The dtype of the results shows whether this one does.
    torch::jit::Stack results = *stack;
    info.handle.callBoxedForDispatchKey(info.reentry, results);
    if (const c10::ScalarType type = results.front().toTensor().scalar_type();
        c10::isFloatingType(type)) {
      common = type;
    }
  }
  CopyAsCpu(common, stack);
  info.handle.callBoxedForDispatchKey(info.reentry, *stack);
}

// Throws if the addend cannot be broadcast to the matrix product. PyTorch's
// meta function leaves this check to the kernels.
void CheckAddend(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments,
                 const ResultMeta& product) {
  if (info.name != "aten::addmm" && info.name != "aten::_addmm_activation") {
    return;
  }
  const at::Tensor& addend = arguments[0].toTensor();
  TORCH_CHECK(addend.dim() <= static_cast<int64_t>(product.sizes.size()),
              "expand(", addend.toString(), "{", addend.sizes(),
              "}, size=", c10::IntArrayRef(product.sizes),
              "): the number of sizes provided (", product.sizes.size(),
              ") must be greater or equal to the number of dimensions in the "
              "tensor (",
              addend.dim(), ")");
  at::inferExpandGeometry(addend.sizes(), addend.strides(), product.sizes);
}

InferredResults FromReentry(const OperatorInfo& info,
                            c10::ArrayRef<c10::IValue> arguments) {
  absl::flat_hash_set<const c10::StorageImpl*> operands;
  for (const c10::IValue& argument : arguments) {
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.has_storage()) {
        operands.insert(tensor.unsafeGetTensorImpl()
                            ->unsafe_storage()
                            .unsafeGetStorageImpl());
      }
    });
  }
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  Reenter(info, &stack);
  InferredResults inferred;
  size_t aliases = 0;
  // True if a result has its own memory but begins at an offset, as a copy that
  // keeps its source's offset does.
  bool offset = false;
  for (const c10::IValue& value : stack) {
    size_t length = 0;
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      ++length;
      offset |= tensor.defined() && tensor.storage_offset() != 0;
      inferred.results.push_back(MetaOf(tensor));
      if (tensor.defined() && operands.contains(tensor.unsafeGetTensorImpl()
                                                    ->unsafe_storage()
                                                    .unsafeGetStorageImpl())) {
        ++aliases;
      }
    });
    inferred.lengths.push_back(length);
  }
  if (aliases == 0) {
    if (offset) return {};
    if (!inferred.results.empty()) {
      CheckAddend(info, arguments, inferred.results[0]);
    }
    inferred.outcome = InferredResults::Outcome::kKnown;
  } else if (aliases == inferred.results.size()) {
    inferred.outcome = InferredResults::Outcome::kViews;
    inferred.views.assign(stack.begin(), stack.end());
  }
  // If some results are views and others are not, the worker decides.
  return inferred;
}

// Copies an operator's arguments to the meta device, where the operator's own
// meta kernel runs. Tensors that share a storage and a dtype share a storage
// there as well.
class MetaArguments {
 public:
  c10::IValue operator()(const c10::IValue& value) {
    if (value.isDevice()) return c10::Device(c10::kMeta);
    if (value.isTensor()) return Copy(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) {
        list.push_back(Copy(tensor));
      }
      return list;
    }
    if (!value.isList() || value.isIntList() || value.isDoubleList() ||
        value.isBoolList()) {
      return value;
    }
    bool tensors = false;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      tensors |= element.isTensor();
      list.push_back(element.isTensor()
                         ? std::optional(Copy(element.toTensor()))
                         : std::nullopt);
    }
    return tensors ? c10::IValue(std::move(list)) : value;
  }

  bool Has(const at::Tensor& tensor) const {
    for (const auto& [source, copy] : copies_) {
      if (copy.is_alias_of(tensor)) return true;
    }
    return false;
  }

 private:
  at::Tensor Copy(const at::Tensor& tensor) {
    if (!IsRemote(tensor)) return tensor;
    const c10::StorageImpl* storage =
        tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    at::Tensor& whole = copies_[{storage, tensor.scalar_type()}];
    if (!whole.defined()) {
      const auto elements =
          static_cast<int64_t>(storage->nbytes() / tensor.element_size());
      whole =
          at::empty({elements},
                    at::TensorOptions(c10::kMeta).dtype(tensor.scalar_type()));
    }
    return whole.as_strided(tensor.sizes(), tensor.strides(),
                            tensor.storage_offset());
  }

  absl::flat_hash_map<std::pair<const c10::StorageImpl*, c10::ScalarType>,
                      at::Tensor>
      copies_;
};

// Infers by the operator's own kernel for meta tensors.
InferredResults FromMeta(const OperatorInfo& info,
                         c10::ArrayRef<c10::IValue> arguments) {
  if (!info.handle.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
      info.handle.hasTag(at::Tag::dynamic_output_shape)) {
    return {};
  }
  MetaArguments copy;
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(copy(argument));
  {
    // Keeps the arguments alive, because a kernel that returns the tensors that
    // it wrote uses them after the stack has released them.
    const torch::jit::Stack held = stack;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    info.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta),
                                &stack);
  }
  InferredResults inferred;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (info.returned_arguments[i] >= 0) continue;
    size_t length = 0;
    bool unusual = false;
    ForEachTensor(stack[i], [&](const at::Tensor& tensor) {
      ++length;
      inferred.results.push_back(MetaOf(tensor));
      unusual |= tensor.defined() &&
                 (tensor.storage_offset() != 0 || copy.Has(tensor));
    });
    // The result is not new memory, so the worker decides.
    if (unusual) return {};
    inferred.lengths.push_back(length);
  }
  inferred.outcome = InferredResults::Outcome::kKnown;
  return inferred;
}

// Returns whether the text of a C++ exception is that of an exception in
// Python, other than those that end the program. The text is empty if PyTorch
// has left the exception set in the interpreter, which must then see it.
bool IsPythonException(absl::string_view text) {
  return !text.empty() && !absl::StartsWith(text, "KeyboardInterrupt") &&
         !absl::StartsWith(text, "SystemExit");
}

InferredResults InferUncast(const OperatorInfo& info,
                            c10::ArrayRef<c10::IValue> arguments) {
  // A rule exists where re-entry fails or gives a wrong answer.
  if (info.rule != nullptr) {
    InferredResults inferred;
    inferred.results = (*info.rule)(arguments);
    if (!inferred.results.empty() || info.returns_list.empty()) {
      inferred.lengths = LengthsOf(info, inferred.results.size());
      const bool known =
          std::all_of(inferred.results.begin(), inferred.results.end(),
                      [](const ResultMeta& meta) { return meta.known; });
      inferred.outcome = known ? InferredResults::Outcome::kKnown
                               : InferredResults::Outcome::kUnknown;
      return inferred;
    }
  }
  if (info.reentry == c10::DispatchKey::Undefined && !info.is_custom) return {};
  try {
    return info.is_custom ? FromMeta(info, arguments)
                          : FromReentry(info, arguments);
  } catch (const NoShape&) {
    return {};
  } catch (const c10::NotImplementedError&) {
    // A composite called an operator that no remote device has. The worker may
    // have the composite itself, or reports a better error.
    return {};
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    // A fake in Python may be unable to tell the shape from meta tensors, and
    // says so in its own way. The worker knows it, or reports the operator's
    // own error.
    if (!info.is_custom || !IsPythonException(error.what())) throw;
    return {};
  }
}

// Infers a call in an autocast region of an operator that the CPU computes by
// other operators. Returns nullopt if autocast casts none of these.
std::optional<InferredResults> InferCast(const OperatorInfo& info,
                                         c10::ArrayRef<c10::IValue> arguments) {
  const CastWatch watch;
  InferredResults inferred;
  try {
    // A rule does not show what the operator calls.
    inferred = FromReentry(info, arguments);
  } catch (const NoShape&) {
  } catch (const c10::NotImplementedError&) {
  } catch (const c10::Error&) {
    // Only an operator without a rule depends on re-entry. For another one, a
    // failure of re-entry is no error of the call.
    if (info.rule == nullptr) throw;
  }
  if (!watch.saw_cast()) return std::nullopt;
  inferred.outcome = InferredResults::Outcome::kCastParts;
  return inferred;
}

}  // namespace

InferredResults InferResults(const OperatorInfo& info,
                             c10::ArrayRef<c10::IValue> arguments) {
  if (info.is_composite_on_cpu && CastsParts()) {
    std::optional<InferredResults> cast = InferCast(info, arguments);
    if (cast.has_value()) return *std::move(cast);
  }
  return InferUncast(info, arguments);
}

}  // namespace djinn::capture
