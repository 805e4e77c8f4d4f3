#include "client_lib/capture/operators/output_rules.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

namespace djinn::capture {
namespace {

// Returns, for example, "add" for aten::add.out and aten::add_.Tensor.
std::string BaseName(const c10::FunctionSchema& schema) {
  std::string base = schema.name().substr(sizeof("aten::") - 1);
  if (base.back() == '_') base.pop_back();
  return base;
}

// Elementwise operators that lack PyTorch's tag for them.
bool IsUntaggedElementwise(const std::string& base) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "__ilshift__",
      "__irshift__",
      "abs",
      "binary_cross_entropy_backward",
      "celu",
      "copy",
      "copysign",
      "elu",
      "eq",
      "floor_divide",
      "gcd",
      "ge",
      "gelu",
      "gelu_backward",
      "gt",
      "hardshrink",
      "hardshrink_backward",
      "hardsigmoid",
      "hardsigmoid_backward",
      "hardswish",
      "hardtanh",
      "hardtanh_backward",
      "heaviside",
      "huber_loss_backward",
      "lcm",
      "le",
      "leaky_relu",
      "leaky_relu_backward",
      "log_sigmoid_backward",
      "lt",
      "mish",
      "mse_loss_backward",
      "ne",
      "rrelu",
      "rrelu_with_noise",
      "smooth_l1_loss_backward",
      "softplus",
      "softplus_backward",
      "softshrink",
      "softshrink_backward",
      "xlogy",
  };
  return names->contains(base);
}

// Other operators that check for overlaps.
bool IsWrittenInOrder(const std::string& base) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "_addmm_activation",
      "_logcumsumexp",
      "addmm",
      "bernoulli",
      "cauchy",
      "cumprod",
      "cumsum",
      "exponential",
      "geometric",
      "log_normal",
      "masked_scatter",
      "mm",
      "normal",
      "random",
      "renorm",
      "uniform",
  };
  return names->contains(base);
}

// Operators that read some elements after they have written others.
bool IsWrittenOutOfOrder(const std::string& base) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "_index_put_impl",
      "cat",
      "gather",
      "index",
      "index_add",
      "index_copy",
      "index_fill",
      "index_put",
      "index_reduce",
      "index_select",
      "put",
      "scatter",
      "scatter_add",
      "scatter_reduce",
      "take",
  };
  return names->contains(base);
}

// Returns the rule for operators that prepare their output from an argument.
Sharing SharingOfOther(const std::string& base, const c10::Argument& argument) {
  const std::string& name = argument.name();
  if (base == "cross" || base == "linalg_cross") return Sharing::kNothing;
  // The output starts as a copy of this argument, or replaces it.
  const bool copied =
      (name == "self" && (base == "addbmm" || base == "addmv" ||
                          base == "baddbmm" || base == "msort")) ||
      (name == "bias" && base == "linear");
  return copied || base == "addr" ? Sharing::kAllOrNothing : Sharing::kAny;
}

Sharing SharingOf(const std::string& base, const c10::Argument& argument) {
  // The kernel reads these before it writes, or at the same positions.
  const bool product =
      base == "mm" || base == "addmm" || base == "_addmm_activation";
  if (argument.name() == "value" || base == "mvlgamma" ||
      (product && argument.name() != "self") || base == "mm" ||
      (base == "ldexp" && argument.name() == "other")) {
    return Sharing::kAny;
  }
  if (!IsWrittenOutOfOrder(base)) return Sharing::kAllOrNothing;
  if (base == "gather" && argument.name() == "index") {
    return Sharing::kAllOrNothing;
  }
  // The kernel copies this to the output first.
  const bool copied = argument.name() == "self" && base != "gather" &&
                      base != "index" && base != "index_select" &&
                      base != "take";
  return copied ? Sharing::kAllOrNothing : Sharing::kNothing;
}

// Unary operators that do not convert their result to the output's dtype.
bool KeepsType(const c10::FunctionSchema& schema, const std::string& base) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "abs",        "bitwise_not", "ceil",       "conj_physical", "elu",
      "floor",      "frac",        "gelu",       "hardshrink",    "hardsigmoid",
      "hardswish",  "hardtanh",    "leaky_relu", "masked_select", "mish",
      "nan_to_num", "neg",         "nonzero",    "round",         "sgn",
      "sign",       "silu",        "softplus",   "softshrink",    "trunc",
  };
  return names->contains(base) ||
         (base == "lerp" && schema.overload_name() == "Tensor_out");
}

// Returns the position of the dtype argument, for operators that compute in the
// output's dtype by default. Operators that PyTorch generates from a functional
// form compute in the form's dtype instead.
int TypeArgument(const c10::OperatorHandle& op, const std::string& base) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "cumprod", "cumsum", "nansum", "prod", "sum"};
  if (!names->contains(base) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
    return -1;
  }
  const c10::FunctionSchema& schema = op.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == "dtype") return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

OutputRules OutputRulesOf(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string base = BaseName(schema);
  const bool is_out = absl::c_any_of(
      schema.arguments(), [](const c10::Argument& a) { return a.is_out(); });
  OutputRules rules;
  // This operator has the tag, but fills its output if the base is 1.
  if (base == "pow" && schema.overload_name() == "Scalar_out") return rules;
  rules.elementwise =
      op.hasTag(at::Tag::pointwise) || IsUntaggedElementwise(base);
  if (rules.elementwise || IsWrittenInOrder(base) ||
      IsWrittenOutOfOrder(base)) {
    // These only warn if they write to an expanded tensor.
    rules.distinct_elements = base != "masked_fill" && base != "index_fill" &&
                              base != "index_put" && base != "_index_put_impl";
    for (const c10::Argument& argument : schema.arguments()) {
      rules.sharing.push_back(SharingOf(base, argument));
    }
  } else {
    // PyTorch lets some of these operators write to expanded outputs, and
    // others out of bounds. Djinn refuses both.
    rules.distinct_elements = is_out || base == "addbmm" || base == "addr";
    for (const c10::Argument& argument : schema.arguments()) {
      rules.sharing.push_back(SharingOfOther(base, argument));
    }
  }
  rules.exact_type = KeepsType(schema, base);
  rules.own_type = base == "cumsum" || base == "cumprod";
  if (is_out) rules.type_argument = TypeArgument(op, base);
  rules.truth = base == "all" || base == "any";
  rules.counts_elements = base == "arange" || base == "linspace" ||
                          base == "logspace" || base == "range";
  rules.leaves_integers = schema.name() == "aten::nan_to_num_";
  rules.leaves_reals = schema.name() == "aten::conj_physical_";
  rules.copies_integers =
      base == "ceil" || base == "floor" || base == "round" || base == "trunc";
  // These compute the result in other memory and copy it to the output.
  rules.laid_out = base != "cholesky" && !absl::StartsWith(base, "_fft_");
  return rules;
}

}  // namespace djinn::capture
