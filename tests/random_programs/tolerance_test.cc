#include "tests/random_programs/tolerance.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::random_programs {
namespace {

// Holds a program written by hand, and its results.
class ToleranceTest : public testing::Test {
 protected:
  ToleranceTest() { program_.seed = 5; }

  int Upload(const at::Tensor& values) {
    Step step;
    step.kind = Step::Kind::kUpload;
    step.arguments = {c10::IValue(values)};
    return Add(std::move(step));
  }
  int Call(const std::string& name, std::vector<Argument> arguments) {
    Step step;
    step.op = FindOperator(name);
    const auto& formals = step.op->schema().arguments();
    for (size_t i = arguments.size(); i < formals.size(); ++i) {
      arguments.emplace_back(
          formals[i].default_value().value_or(c10::IValue()));
    }
    step.arguments = std::move(arguments);
    return Add(std::move(step));
  }
  void SetFast(bool fast) {
    Step step;
    step.kind = Step::Kind::kSetFast;
    step.arguments = {c10::IValue(fast)};
    program_.steps.push_back(std::move(step));
  }
  // Returns random elements, the same each time.
  static at::Tensor Values(at::IntArrayRef sizes) {
    at::manual_seed(7);
    return at::randn(sizes);
  }
  void Run() {
    Oracle oracle(program_, /*failures=*/true);
    for (const Step& step : program_.steps) {
      expectations_.push_back(oracle.Apply(step));
    }
    values_ = oracle.Finish();
  }
  const FinalValue& value(int slot) const { return values_[slot]; }
  bool Allows(int slot, const at::Tensor& actual) {
    return tolerance_.AllowsAtTheEnd(value(slot), actual);
  }

  Program program_;
  std::vector<Expectation> expectations_;
  std::vector<FinalValue> values_;
  Tolerance tolerance_{program_, expectations_, /*fast=*/true};

 private:
  int Add(Step step) {
    step.results = {program_.slots};
    program_.steps.push_back(std::move(step));
    return program_.slots++;
  }
};

TEST_F(ToleranceTest, ValueComputedInStrictModeMayNotDiffer) {
  const int a = Upload(Values({8, 40}));
  const int fast = Call("mm", {Slot{a}, Slot{Call("t", {Slot{a}})}});
  SetFast(false);
  const int strict = Call("mm", {Slot{a}, Slot{Call("t", {Slot{a}})}});
  SetFast(true);
  const int again = Call("sum", {Slot{a}});
  Run();
  EXPECT_TRUE(Allows(fast, value(fast).value * (1 + 1e-6)));
  EXPECT_FALSE(Allows(strict, value(strict).value * (1 + 1e-6)));
  EXPECT_TRUE(Allows(again, value(again).value * (1 + 1e-6)));
}

TEST_F(ToleranceTest, ASumMayDifferByItsRoundings) {
  const int a = Upload(Values({8, 40}));
  const int product = Call("mm", {Slot{a}, Slot{Call("t", {Slot{a}})}});
  Run();
  const at::Tensor right = value(product).value;
  EXPECT_TRUE(Allows(product, right));
  EXPECT_TRUE(Allows(product, right * (1 + 1e-6)));
  EXPECT_FALSE(Allows(product, right * 1.1));
  EXPECT_FALSE(Allows(product, right.t() + 1));
  EXPECT_FALSE(Allows(product, right.to(at::kDouble)));
  EXPECT_FALSE(Allows(product, right.slice(0, 1)));
}

TEST_F(ToleranceTest, ValueBeforeASumMayNotDiffer) {
  const int a = Upload(Values({8, 40}));
  const int negated = Call("neg", {Slot{a}});
  Call("sum", {Slot{negated}});
  Run();
  at::Tensor other = value(negated).value.clone();
  EXPECT_TRUE(Allows(negated, other));
  other[3][4].mul_(1 + 1e-6);
  EXPECT_FALSE(Allows(negated, other));
  EXPECT_FALSE(Allows(a, value(a).value * (1 + 1e-6)));
}

TEST_F(ToleranceTest, TheDifferenceOfEqualSumsMayBeTheirRoundings) {
  const int a = Upload(Values({1000}));
  const int difference = Call("sub.Tensor", {Slot{Call("sum", {Slot{a}})},
                                             Slot{Call("sum", {Slot{a}})}});
  Run();
  EXPECT_EQ(value(difference).value.item<float>(), 0);
  EXPECT_TRUE(Allows(difference, at::full({}, 1e-5)));
  EXPECT_FALSE(Allows(difference, at::full({}, 1.0)));
}

TEST_F(ToleranceTest, AnyOfEqualSumsMayBeTheLargest) {
  const int a = Upload(Values({1, 50}).expand({3, 50}).clone());
  const int sums =
      Call("sum.dim_IntList", {Slot{a}, c10::IValue(std::vector<int64_t>{1})});
  const int largest = Call("argmax", {Slot{sums}});
  Run();
  EXPECT_TRUE(Allows(largest, at::scalar_tensor(0, at::kLong)));
  EXPECT_TRUE(Allows(largest, at::scalar_tensor(2, at::kLong)));
}

TEST_F(ToleranceTest, LargestOfDistinctSumsIsExact) {
  at::Tensor rows = Values({1, 50}).expand({3, 50}).clone();
  rows[1].add_(0.01);
  const int a = Upload(rows);
  const int sums =
      Call("sum.dim_IntList", {Slot{a}, c10::IValue(std::vector<int64_t>{1})});
  const int largest = Call("argmax", {Slot{sums}});
  Run();
  EXPECT_TRUE(Allows(largest, at::scalar_tensor(1, at::kLong)));
  EXPECT_FALSE(Allows(largest, at::scalar_tensor(0, at::kLong)));
}

TEST_F(ToleranceTest, FeedbackThatMultipliesRoundingsLeavesAValueOpen) {
  for (const double strength : {0.1, 3.0}) {
    const int weight = Upload(Values({40, 40}).mul(strength));
    int state = Upload(Values({1, 40}));
    for (int i = 0; i < 40; ++i) {
      state = Call("tanh", {Slot{Call("mm", {Slot{state}, Slot{weight}})}});
    }
  }
  Run();
  const int strong = program_.slots - 1, weak = strong - 82;
  EXPECT_TRUE(Allows(strong, value(strong).value.neg()));
  EXPECT_FALSE(Allows(weak, value(weak).value.neg()));
}

TEST_F(ToleranceTest, AShapeMayDependOnASum) {
  const int a = Upload(Values({1000}));
  const int difference = Call("sub.Tensor", {Slot{Call("sum", {Slot{a}})},
                                             Slot{Call("sum", {Slot{a}})}});
  Call("nonzero", {Slot{a}});
  Call("nonzero", {Slot{difference}});
  Run();
  const size_t last = program_.steps.size() - 1;
  EXPECT_TRUE(tolerance_.AllowsAnotherOutcome(last));
  EXPECT_FALSE(tolerance_.AllowsAnotherOutcome(last - 1));
}

TEST_F(ToleranceTest, IntegersAreExact) {
  const int a = Upload(at::arange(100));
  const int sum = Call("sum", {Slot{a}});
  Run();
  EXPECT_TRUE(Allows(sum, at::scalar_tensor(4950, at::kLong)));
  EXPECT_FALSE(Allows(sum, at::scalar_tensor(4951, at::kLong)));
}

}  // namespace
}  // namespace djinn::random_programs
