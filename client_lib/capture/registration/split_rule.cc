#include "client_lib/capture/registration/split_rule.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/operators/boxed_call.h"

namespace djinn::capture {
namespace {

template <typename Predicate>
bool AnyTensor(Arguments arguments, Predicate holds) {
  bool any = false;
  for (const c10::IValue& argument : arguments) {
    ForEachDefinedTensor(argument, [&](const at::Tensor& tensor) {
      any = any || holds(tensor);
    });
  }
  return any;
}

// Returns whether results that are computed from the tensor will be
// differentiated: backward, because gradients are recorded and the tensor
// requires one, or forward, because it carries a tangent
// (torch.autograd.forward_ad, torch.func.jvp), whatever the gradient mode is.
bool IsDifferentiated(const at::Tensor& tensor) {
  // There is one level of tangents; functorch wraps the others.
  return (c10::GradMode::is_enabled() && tensor.requires_grad()) ||
         tensor._fw_grad(/*level=*/0).defined();
}

// Returns whether an operand is lazily conjugated or negated. Below autograd,
// PyTorch would resolve that before the composite runs. On the CPU the
// composite's parts pass it on to their matrix products.
bool IsLazy(const at::Tensor& tensor) {
  return tensor.is_conj() || tensor.is_neg();
}

// Returns whether the tensor is sparse. The composite's parts have sparse
// kernels.
bool IsSparse(const at::Tensor& tensor) {
  return tensor.layout() != c10::kStrided;
}

// Returns whether all but the last dimension are evenly spaced. matmul()
// compares strides in this way, so a dimension of size 1 counts like any other.
bool IsEvenlySpaced(const at::Tensor& tensor) {
  for (int64_t i = 0; i + 2 < tensor.dim(); ++i) {
    if (tensor.stride(i) != tensor.stride(i + 1) * tensor.size(i + 1)) {
      return false;
    }
  }
  return true;
}

// Returns whether matmul() folds the larger operand into one matrix only
// because the smaller operand requires a gradient. It then copies the larger
// operand if necessary. It asks for requires_grad, not for the gradient mode.
bool FoldsForGradient(const at::Tensor& first, const at::Tensor& second) {
  const bool first_is_larger = first.dim() >= second.dim();
  const at::Tensor& larger = first_is_larger ? first : second;
  const at::Tensor& smaller = first_is_larger ? second : first;
  if (larger.dim() < 3 || smaller.dim() > 2 || !smaller.requires_grad()) {
    return false;
  }
  return !(first_is_larger && IsEvenlySpaced(larger));
}

bool LinearFoldsForGradient(const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias) {
  // linear() itself folds such an input, for any weight.
  if (bias.defined() && bias.dim() == 1 && bias.is_contiguous() &&
      input.is_contiguous()) {
    return false;
  }
  // The weight is transposed, so it keeps its number of dimensions.
  return FoldsForGradient(input, weight);
}

bool MatmulDiffers(Arguments arguments) {
  return FoldsForGradient(arguments[0].toTensor(), arguments[1].toTensor());
}

bool LinearDiffers(Arguments arguments) {
  constexpr size_t kBias = 2;
  return LinearFoldsForGradient(
      arguments[0].toTensor(), arguments[1].toTensor(),
      arguments[kBias].isTensor() ? arguments[kBias].toTensor() : at::Tensor());
}

bool AttentionDiffers(Arguments arguments) {
  constexpr size_t kMask = 3;
  const at::Context& context = at::globalContext();
  return !context.userEnabledFlashSDP() || !context.userEnabledMathSDP() ||
         context.allowFP16BF16ReductionMathSDP() ||
         (arguments[kMask].isTensor() &&
          arguments[kMask].toTensor().requires_grad());
}

// Returns whether the product of a network's first input folds for a gradient.
// The inputs of the other layers are contiguous, and the hidden states are
// matrices.
bool NetworkDiffers(Arguments arguments) {
  constexpr size_t kParameters = 2, kHasBiases = 3, kBatchFirst = 8;
  const at::Tensor& input = arguments[0].toTensor();
  const c10::List<at::Tensor> parameters =
      arguments[kParameters].toTensorList();
  const bool biases = arguments[kHasBiases].toBool();
  // A call with too few parameters ends in PyTorch's error either way.
  if (input.dim() != 3 || parameters.size() < (biases ? 4u : 2u)) return false;
  const at::Tensor weight = parameters.get(0);
  if (!weight.requires_grad()) return false;
  return LinearFoldsForGradient(
      arguments[kBatchFirst].toBool() ? input.transpose(0, 1) : input, weight,
      biases ? parameters.get(2) : at::Tensor());
}

// The CPU computes an LSTM without projections by oneDNN, which multiplies on
// its own, unless the type is one that oneDNN lacks.
bool LstmDiffers(Arguments arguments) {
  const c10::List<at::Tensor> states = arguments[1].toTensorList();
  if (states.size() != 2) return false;
  const at::Tensor hidden = states.get(0), cells = states.get(1);
  if (hidden.dim() != 3 || cells.dim() != 3) return false;
  const bool projects = hidden.size(2) != cells.size(2);
  const c10::ScalarType type = arguments[0].toTensor().scalar_type();
  const bool in_onednn =
      type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  return (projects || !in_onednn) && NetworkDiffers(arguments);
}

}  // namespace

SplitRule::SplitRule(const std::string& name, c10::KernelFunction own_split)
    : chooses_otherwise_(PredicateOf(name)),
      may_make_view_(name == "aten::einsum"),
      own_split_(std::move(own_split)) {}

SplitRule::Predicate SplitRule::PredicateOf(const std::string& name) {
  static const auto* const predicates =
      new absl::flat_hash_map<std::string, Predicate>{
          {"aten::matmul", &MatmulDiffers},
          {"aten::linear", &LinearDiffers},
          {"aten::scaled_dot_product_attention", &AttentionDiffers},
          {"aten::lstm.input", &LstmDiffers},
          {"aten::gru.input", &NetworkDiffers},
          {"aten::rnn_tanh.input", &NetworkDiffers},
          {"aten::rnn_relu.input", &NetworkDiffers},
      };
  const auto found = predicates->find(name);
  return found == predicates->end() ? nullptr : found->second;
}

bool SplitRule::SplitsBelowAutograd(Arguments arguments) const {
  return CastsParts() ||
         (chooses_otherwise_ != nullptr && chooses_otherwise_(arguments));
}

bool SplitRule::SplitsAboveAutograd(Arguments arguments) const {
  return AnyTensor(arguments, IsDifferentiated) ||
         AnyTensor(arguments, IsLazy) || AnyTensor(arguments, IsSparse) ||
         // Autograd must see a call that returns a view of its operand.
         (may_make_view_ && arguments[1].toListRef().size() == 1) ||
         SplitsBelowAutograd(arguments);
}

void SplitRule::Split(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) const {
  if (own_split_.isValid()) {
    own_split_.callBoxed(op, keys, stack);
  } else {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd,
                               *stack);
  }
}

}  // namespace djinn::capture
