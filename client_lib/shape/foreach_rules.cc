// Rules for functional operators over lists of tensors. Each result is what the
// operator gives for one element of the list.
#include <string>
#include <utility>
#include <vector>

#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::ScalarType;

std::vector<c10::Scalar> Scalars(c10::ArrayRef<c10::IValue> list) {
  std::vector<c10::Scalar> result;
  for (const c10::IValue& value : list) result.push_back(value.toScalar());
  return result;
}

void CheckSizes(size_t first, size_t second) {
  TORCH_CHECK(first > 0, "Tensor list must have at least one tensor.");
  TORCH_CHECK(first == second,
              "Tensor lists must have the same number of tensors, got ", first,
              " and ", second);
}

ScalarType Computed(ScalarType common, bool floating) {
  return floating ? FloatingOrDefault(common) : common;
}

Results Unary(const CallArguments& args, bool floating) {
  const std::vector<at::Tensor> selves = args.Tensors(0);
  CheckSizes(selves.size(), selves.size());
  Results results;
  for (const at::Tensor& self : selves) {
    const ScalarType common = Computed(self.scalar_type(), floating);
    results.push_back(Elementwise(common, {Describe(self)}, common));
  }
  return results;
}

Results Abs(const CallArguments& args) {
  Results results = Unary(args, /*floating=*/false);
  for (ResultMeta& result : results) {
    result.dtype = c10::toRealValueType(result.dtype);
  }
  return results;
}

ResultMeta OnePair(const at::Tensor& left, const at::Tensor& right,
                   bool floating) {
  const ScalarType common =
      Computed(TypePromotion().Add(left).Add(right).Result(), floating);
  return Elementwise(common, {Describe(left), Describe(right)}, common);
}

// The properties of a binary operator in these rules.
struct BinaryOperator {
  const char* name;
  // True if integers give the default floating-point dtype.
  bool floating = false;
  // True if a scalar becomes a second operand without dimensions.
  bool scalar_is_operand = false;
};

constexpr BinaryOperator kBinaryOperators[] = {
    {"add", false, true},
    {"sub", false, true},
    {"mul", false, true},
    {"div", true, true},
    {"pow"},
    {"clamp_max"},
    {"clamp_min"},
    {"maximum"},
    {"minimum"},
};

ResultMeta WithScalar(const BinaryOperator& op, const at::Tensor& self,
                      const c10::Scalar& scalar) {
  const ScalarType common =
      Computed(TypePromotion().Add(self).Add(scalar).Result(), op.floating);
  std::vector<ResultMeta> operands = {Describe(self)};
  if (op.scalar_is_operand) operands.emplace_back();
  return Elementwise(common, operands, common);
}

Results PairOfLists(const CallArguments& args, bool floating) {
  const auto left = args.Tensors(0), right = args.Tensors(1);
  CheckSizes(left.size(), right.size());
  Results results;
  for (size_t i = 0; i < left.size(); ++i) {
    results.push_back(OnePair(left[i], right[i], floating));
  }
  return results;
}

Results ListAndTensor(const CallArguments& args, bool floating) {
  const auto left = args.Tensors(0);
  const at::Tensor& right = args.Tensor(1);
  CheckSizes(left.size(), left.size());
  TORCH_CHECK(right.dim() == 0 && right.numel() == 1,
              "scalar tensor expected to be 0 dim but it has ", right.dim(),
              " dimensions");
  Results results;
  for (const at::Tensor& self : left) {
    results.push_back(OnePair(self, right, floating));
  }
  return results;
}

Results ListAndScalar(const BinaryOperator& op, const CallArguments& args) {
  const auto selves = args.Tensors(0);
  CheckSizes(selves.size(), selves.size());
  Results results;
  for (const at::Tensor& self : selves) {
    results.push_back(WithScalar(op, self, args.Scalar(1)));
  }
  return results;
}

Results ListAndScalars(const BinaryOperator& op, const CallArguments& args) {
  const auto selves = args.Tensors(0);
  const std::vector<c10::Scalar> scalars = Scalars(args.List(1));
  CheckSizes(selves.size(), scalars.size());
  Results results;
  for (size_t i = 0; i < selves.size(); ++i) {
    results.push_back(WithScalar(op, selves[i], scalars[i]));
  }
  return results;
}

// The rule for addcmul and addcdiv, in every form of the factor.
Results Ternary(const CallArguments& args) {
  const auto selves = args.Tensors(0), first = args.Tensors(1),
             second = args.Tensors(2);
  CheckSizes(selves.size(), first.size());
  CheckSizes(selves.size(), second.size());
  Results results;
  for (size_t i = 0; i < selves.size(); ++i) {
    const ScalarType common =
        TypePromotion().Add(selves[i]).Add(first[i]).Add(second[i]).Result();
    results.push_back(Elementwise(
        common, {Describe(selves[i]), Describe(first[i]), Describe(second[i])},
        common));
  }
  return results;
}

// The rule for lerp with one weight for all elements of a tensor.
Results LerpScalar(const CallArguments& args) {
  const auto selves = args.Tensors(0), ends = args.Tensors(1);
  CheckSizes(selves.size(), ends.size());
  Results results;
  for (size_t i = 0; i < selves.size(); ++i) {
    CheckSameType("lerp", {selves[i], ends[i]});
    results.push_back(Elementwise(selves[i].scalar_type(),
                                  {Describe(selves[i]), Describe(ends[i])}));
  }
  return results;
}

Results Norm(const CallArguments& args) {
  const auto selves = args.Tensors(0);
  CheckSizes(selves.size(), selves.size());
  Results results;
  for (const at::Tensor& self : selves) {
    CheckFloating("linalg.vector_norm", self, /*complex_too=*/true);
    results.push_back(Contiguous(
        c10::toRealValueType(args.DtypeOr(2, self.scalar_type())), {}));
  }
  return results;
}

Results Max(const CallArguments& args) {
  const auto selves = args.Tensors(0);
  CheckSizes(selves.size(), selves.size());
  Results results;
  for (const at::Tensor& self : selves) {
    TORCH_CHECK(self.numel() > 0, "max(): Expected a tensor with elements");
    results.push_back(Contiguous(self.scalar_type(), {}));
  }
  return results;
}

}  // namespace

void AddForeachRules(RuleTable* table) {
  for (const char* name :
       {"ceil", "floor", "frac", "neg", "round", "sign", "trunc"}) {
    table->Add({std::string("aten::_foreach_") + name},
               [](const CallArguments& args) { return Unary(args, false); });
  }
  for (const char* name :
       {"acos",  "asin", "atan",       "cos",    "cosh",    "erf",
        "erfc",  "exp",  "expm1",      "lgamma", "log",     "log10",
        "log1p", "log2", "reciprocal", "rsqrt",  "sigmoid", "sin",
        "sinh",  "sqrt", "tan",        "tanh"}) {
    table->Add({std::string("aten::_foreach_") + name},
               [](const CallArguments& args) { return Unary(args, true); });
  }
  table->Add({"aten::_foreach_abs"}, Abs);
  for (const BinaryOperator& op : kBinaryOperators) {
    const std::string prefix = std::string("aten::_foreach_") + op.name;
    table->Add({prefix + ".List"}, [op](const CallArguments& args) {
      return PairOfLists(args, op.floating);
    });
    table->Add({prefix + ".Scalar"}, [op](const CallArguments& args) {
      return ListAndScalar(op, args);
    });
    table->Add({prefix + ".ScalarList"}, [op](const CallArguments& args) {
      return ListAndScalars(op, args);
    });
  }
  table->Add(
      {"aten::_foreach_add.Tensor", "aten::_foreach_mul.Tensor"},
      [](const CallArguments& args) { return ListAndTensor(args, false); });
  table->Add({"aten::_foreach_div.Tensor"}, [](const CallArguments& args) {
    return ListAndTensor(args, true);
  });
  for (const char* name : {"addcmul", "addcdiv"}) {
    const std::string prefix = std::string("aten::_foreach_") + name;
    table->Add({prefix + ".Scalar", prefix + ".ScalarList", prefix + ".Tensor"},
               Ternary);
  }
  table->Add({"aten::_foreach_lerp.List"}, Ternary);
  table->Add({"aten::_foreach_lerp.Scalar", "aten::_foreach_lerp.ScalarList"},
             LerpScalar);
  table->Add({"aten::_foreach_norm.Scalar"}, Norm);
  table->Add({"aten::_foreach_max"}, Max);
}

}  // namespace djinn
