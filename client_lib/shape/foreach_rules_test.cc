#include "ATen/core/dispatch/Dispatcher.h"
#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Tensors = c10::List<at::Tensor>;

Tensors ListOf(const std::vector<at::Tensor>& tensors) {
  Tensors list;
  for (const at::Tensor& tensor : tensors) list.push_back(tensor);
  return list;
}

c10::IValue Numbers(size_t count, double value) {
  c10::impl::GenericList list(c10::NumberType::get());
  for (size_t i = 0; i < count; ++i) list.push_back(c10::IValue(value));
  return list;
}

TEST(ForeachRulesTest, Unary) {
  for (const char* name :
       {"abs",  "acos",       "asin",  "atan",  "ceil",    "cos",
        "cosh", "erf",        "erfc",  "exp",   "expm1",   "floor",
        "frac", "lgamma",     "log",   "log10", "log1p",   "log2",
        "neg",  "reciprocal", "round", "rsqrt", "sigmoid", "sign",
        "sin",  "sinh",       "sqrt",  "tan",   "tanh",    "trunc"}) {
    const std::string op = std::string("aten::_foreach_") + name;
    CheckRule(op, {ListOf(Zoo())});
    if (std::string(name) == "frac") continue;
    CheckRule(op, {ListOf(Layouts({2, 3, 4}, at::kLong))});
  }
  CheckRule("aten::_foreach_abs", {ListOf(Layouts({2, 3}, at::kComplexFloat))});
}

TEST(ForeachRulesTest, Binary) {
  std::vector<at::Tensor> left, right, numbers;
  for (const auto& [x, y] : Pairs()) {
    if (x.sizes() != y.sizes()) continue;
    left.push_back(x);
    right.push_back(y);
  }
  for (const auto& [x, y] : Pairs(at::kLong, at::kInt)) {
    left.push_back(x);
    right.push_back(y);
  }
  for (const char* name : {"add", "sub", "mul", "div", "pow", "clamp_max",
                           "clamp_min", "maximum", "minimum"}) {
    const std::string op = std::string("aten::_foreach_") + name;
    CheckRule(op + ".List", {ListOf(left), ListOf(right)});
    CheckRule(op + ".Scalar", {ListOf(left), 2});
    CheckRule(op + ".Scalar", {ListOf(left), 2.5});
    CheckRule(op + ".ScalarList", {ListOf(left), Numbers(left.size(), 1.5)});
  }
  for (const char* name :
       {"aten::_foreach_add.Tensor", "aten::_foreach_mul.Tensor",
        "aten::_foreach_div.Tensor"}) {
    CheckRule(name, {ListOf(left), Make({})});
    CheckRule(name, {ListOf(left), Make({}, at::kDouble)});
  }
}

TEST(ForeachRulesTest, Ternary) {
  std::vector<at::Tensor> first, second;
  for (const auto& [x, y] : Pairs()) {
    if (x.sizes() != y.sizes()) continue;
    first.push_back(x);
    second.push_back(y);
  }
  const c10::IValue a = ListOf(first), b = ListOf(second);
  for (const char* name : {"addcmul", "addcdiv"}) {
    const std::string op = std::string("aten::_foreach_") + name;
    CheckRule(op + ".Scalar", {a, b, a, 2});
    CheckRule(op + ".ScalarList", {a, a, b, Numbers(first.size(), 1.5)});
    CheckRule(op + ".Tensor",
              {a, a, b, Make({static_cast<int64_t>(first.size())})});
  }
  CheckRule("aten::_foreach_lerp.List", {a, b, a});
  CheckRule("aten::_foreach_lerp.Scalar", {a, b, 0.5});
  CheckRule("aten::_foreach_lerp.ScalarList",
            {a, b, Numbers(first.size(), 0.5)});
}

TEST(ForeachRulesTest, Reductions) {
  CheckRule("aten::_foreach_norm.Scalar", {ListOf(Zoo())});
  CheckRule("aten::_foreach_norm.Scalar", {ListOf(Zoo()), 1, at::kDouble});
  CheckRule("aten::_foreach_norm.Scalar",
            {ListOf(Layouts({2, 3}, at::kComplexFloat))});
  CheckRule("aten::_foreach_max", {ListOf(Layouts({2, 3}))});
}

TEST(ForeachRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::_foreach_add.List",
                {ListOf({Make({2})}), ListOf({Make({2}), Make({2})})});
  CheckRejected("aten::_foreach_add.List",
                {ListOf({Make({2})}), ListOf({Make({3})})});
  CheckRejected("aten::_foreach_exp", {ListOf({})});
  CheckRejected("aten::_foreach_add.Tensor", {ListOf({Make({2})}), Make({2})});
}

}  // namespace
}  // namespace djinn
