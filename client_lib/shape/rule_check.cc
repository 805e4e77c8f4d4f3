#include "client_lib/shape/rule_check.h"

#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/empty_strided.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "client_lib/shape/shape_rules.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using c10::IValue;

std::string Describe(const IValue& value) {
  std::ostringstream text;
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    text << c10::toString(tensor.scalar_type()) << tensor.sizes() << "/"
         << tensor.strides();
  } else if (value.isList()) {
    text << "[";
    for (const IValue& element : value.toListRef()) {
      text << Describe(element) << " ";
    }
    text << "]";
  } else if (value.isTensor()) {
    text << "undefined";
  } else {
    text << value;
  }
  return text.str();
}

constexpr char kOpen[] = "open";

std::string Describe(const ResultMeta& meta) {
  if (!meta.defined) return "undefined";
  if (!meta.known) return kOpen;
  std::ostringstream text;
  text << c10::toString(meta.dtype) << c10::IntArrayRef(meta.sizes) << "/"
       << c10::IntArrayRef(meta.strides);
  return text.str();
}

// Returns a tensor with the same metadata and no data, so that a rule that
// reads data crashes.
at::Tensor WithoutData(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(),
                                      tensor.options().device(at::kMeta));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  copy._set_conj(tensor.is_conj());
  copy._set_neg(tensor.is_neg());
  return copy;
}

IValue WithoutData(const IValue& value) {
  if (value.isTensor()) return WithoutData(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> copies;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      copies.push_back(WithoutData(tensor));
    }
    return copies;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> copies;
    for (const IValue& element : value.toListRef()) {
      copies.push_back(element.isNone() ? std::optional<at::Tensor>()
                                        : WithoutData(element.toTensor()));
    }
    return copies;
  }
  return value;
}

c10::OperatorHandle FindOperator(const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      name.substr(0, dot).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

// The results of one side as text, or its error.
struct Answer {
  std::vector<std::string> results;
  // The strides alone, for dimensions with more than one element.
  std::vector<std::vector<int64_t>> steps;
  std::string error;
};

std::vector<int64_t> StepsOf(const at::Tensor& tensor) {
  std::vector<int64_t> steps;
  if (!tensor.defined() || tensor.numel() == 0) return steps;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) steps.push_back(tensor.stride(d));
  }
  return steps;
}

void AppendResults(const IValue& value, Answer* answer) {
  if (value.isList()) {
    for (const IValue& element : value.toListRef()) {
      AppendResults(element, answer);
    }
  } else if (value.isTensor()) {
    answer->results.push_back(Describe(value));
    answer->steps.push_back(StepsOf(value.toTensor()));
  }
}

Answer Run(const c10::OperatorHandle& op, std::vector<IValue> stack) {
  Answer answer;
  // Keeps the arguments alive, because a kernel that returns several outputs
  // uses them after the stack has released them.
  const std::vector<IValue> held = stack;
  try {
    op.callBoxed(stack);
  } catch (const std::exception& error) {
    answer.error = error.what();
    return answer;
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    const c10::AliasInfo* alias = op.schema().returns()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    AppendResults(stack[i], &answer);
  }
  return answer;
}

Answer Apply(const std::string& name, const std::vector<IValue>& arguments) {
  Answer answer;
  const ShapeRule* rule = FindShapeRule(name);
  if (rule == nullptr) {
    answer.error = "there is no rule";
    return answer;
  }
  std::vector<IValue> bare;
  for (const IValue& argument : arguments) {
    bare.push_back(WithoutData(argument));
  }
  try {
    for (const ResultMeta& meta : (*rule)(bare)) {
      answer.results.push_back(Describe(meta));
    }
  } catch (const c10::Error& error) {
    answer.error = error.what();
  }
  return answer;
}

std::string DescribeCall(const std::string& name,
                         const std::vector<IValue>& arguments) {
  std::string text = name + "(";
  for (const IValue& argument : arguments) text += Describe(argument) + ", ";
  return text + ")";
}

void AddDefaults(const c10::OperatorHandle& op,
                 std::vector<IValue>* arguments) {
  const auto& schema = op.schema().arguments();
  for (size_t i = arguments->size(); i < schema.size(); ++i) {
    arguments->push_back(schema[i].default_value().value_or(IValue()));
  }
}

}  // namespace

void CheckRule(const std::string& name, std::vector<IValue> arguments) {
  const c10::OperatorHandle op = FindOperator(name);
  AddDefaults(op, &arguments);
  const std::string call = DescribeCall(name, arguments);
  const Answer predicted = Apply(name, arguments);
  const Answer real = Run(op, std::move(arguments));
  ASSERT_EQ(real.error.substr(0, 200), "") << call;
  EXPECT_EQ(predicted.error.substr(0, 200), "") << call;
  EXPECT_EQ(predicted.results, real.results) << call;
}

void CheckRuleForAnyThreads(const std::string& name,
                            std::vector<IValue> arguments) {
  const c10::OperatorHandle op = FindOperator(name);
  AddDefaults(op, &arguments);
  const std::string call = DescribeCall(name, arguments);
  const Answer predicted = Apply(name, arguments);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Answer one = Run(op, arguments);
  at::set_num_threads(2);
  const Answer several = Run(op, std::move(arguments));
  at::set_num_threads(threads);
  ASSERT_EQ(predicted.error + one.error + several.error, "") << call;
  ASSERT_EQ(predicted.results.size(), several.results.size()) << call;
  for (size_t i = 0; i < several.results.size(); ++i) {
    const bool open = predicted.results[i] == kOpen;
    EXPECT_EQ(open, one.steps[i] != several.steps[i]) << call;
    if (!open) {
      EXPECT_EQ(predicted.results[i], several.results[i]) << call;
    }
  }
}

void CheckRejected(const std::string& name, std::vector<IValue> arguments) {
  const c10::OperatorHandle op = FindOperator(name);
  AddDefaults(op, &arguments);
  const std::string call = DescribeCall(name, arguments);
  EXPECT_NE(Apply(name, arguments).error, "") << call;
  EXPECT_NE(Run(op, std::move(arguments)).error, "") << call;
}

void CheckRefused(const std::string& name, std::vector<IValue> arguments) {
  AddDefaults(FindOperator(name), &arguments);
  EXPECT_NE(Apply(name, arguments).error, "") << DescribeCall(name, arguments);
}

at::Tensor Make(at::IntArrayRef sizes, at::ScalarType dtype) {
  return dtype == at::kBool || c10::isIntegralType(dtype, false)
             ? at::ones(sizes, dtype)
             : at::full(sizes, 0.5, dtype);
}

at::Tensor MakeIndex(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::zeros(sizes, dtype);
}

at::Tensor MakeNumber(double value) {
  at::Tensor number = at::full({}, value, at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

std::vector<at::Tensor> Layouts(at::IntArrayRef sizes, at::ScalarType dtype) {
  std::vector<at::Tensor> result = {Make(sizes, dtype)};
  const int64_t rank = sizes.size();
  if (rank == 0) return result;

  std::vector<int64_t> wide = sizes.vec();
  wide[rank - 1] += 3;
  result.push_back(Make(wide, dtype).narrow(rank - 1, 1, sizes[rank - 1]));
  wide = sizes.vec();
  wide[0] *= 2;
  result.push_back(Make(wide, dtype).slice(0, 0, wide[0], 2));
  std::vector<int64_t> one = sizes.vec();
  one[0] = 1;
  result.push_back(Make(one, dtype).expand(sizes));
  if (rank < 2) return result;

  std::vector<int64_t> swapped = sizes.vec();
  std::swap(swapped[0], swapped[1]);
  result.push_back(Make(swapped, dtype).transpose(0, 1));
  swapped = sizes.vec();
  std::swap(swapped[rank - 2], swapped[rank - 1]);
  result.push_back(Make(swapped, dtype).transpose(-2, -1));
  std::swap(swapped[rank - 2], swapped[rank - 1]);
  std::swap(swapped[0], swapped[rank - 1]);
  result.push_back(Make(swapped, dtype).transpose(0, -1));
  swapped[0] += 2;
  result.push_back(
      Make(swapped, dtype).narrow(0, 1, sizes[rank - 1]).transpose(0, -1));
  std::vector<int64_t> last = sizes.vec();
  last[rank - 1] = 1;
  result.push_back(Make(last, dtype).expand(sizes));
  if (rank == 4) {
    result.push_back(
        Make(sizes, dtype).contiguous(at::MemoryFormat::ChannelsLast));
  } else if (rank == 5) {
    result.push_back(
        Make(sizes, dtype).contiguous(at::MemoryFormat::ChannelsLast3d));
  }
  return result;
}

std::vector<at::Tensor> Zoo(at::ScalarType dtype) {
  std::vector<at::Tensor> result;
  for (std::vector<int64_t> sizes :
       std::vector<std::vector<int64_t>>{{},
                                         {1},
                                         {5},
                                         {0},
                                         {2, 3},
                                         {3, 0},
                                         {1, 4},
                                         {2, 3, 4},
                                         {2, 1, 4},
                                         {2, 3, 4, 5},
                                         {2, 1, 4, 4},
                                         {1, 3, 2, 2},
                                         {0, 3, 4, 4},
                                         {2, 3, 2, 4, 5}}) {
    for (at::Tensor& tensor : Layouts(sizes, dtype)) {
      result.push_back(std::move(tensor));
    }
  }
  return result;
}

std::vector<std::pair<at::Tensor, at::Tensor>> Pairs(at::ScalarType left,
                                                     at::ScalarType right) {
  std::vector<std::pair<at::Tensor, at::Tensor>> result;
  using Sizes = std::vector<int64_t>;
  for (const auto& [a, b] :
       std::vector<std::pair<Sizes, Sizes>>{{{2, 3, 4}, {2, 3, 4}},
                                            {{2, 3, 4}, {}},
                                            {{}, {3, 2}},
                                            {{}, {}},
                                            {{2, 3, 4}, {4}},
                                            {{3, 1}, {1, 4}},
                                            {{4}, {2, 3, 4}},
                                            {{2, 3, 4, 5}, {2, 3, 4, 5}},
                                            {{2, 3, 4, 5}, {1, 3, 1, 1}},
                                            {{2, 0, 4}, {4}},
                                            {{0}, {1}},
                                            {{1, 3, 1}, {2, 1, 4}}}) {
    for (const at::Tensor& x : Layouts(a, left)) {
      for (const at::Tensor& y : Layouts(b, right)) result.push_back({x, y});
    }
  }
  return result;
}

IValue Ints(std::vector<int64_t> values) { return IValue(std::move(values)); }

IValue Mask(std::vector<bool> values) {
  c10::List<bool> list;
  for (bool value : values) list.push_back(value);
  return list;
}

IValue None() { return IValue(); }

}  // namespace djinn
