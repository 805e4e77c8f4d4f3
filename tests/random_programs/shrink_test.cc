#include "tests/random_programs/shrink.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::random_programs {
namespace {

constexpr int kAttempts = 100;

Step StepOf(Step::Kind kind, std::vector<Argument> arguments,
            std::vector<int> results) {
  Step step;
  step.kind = kind;
  step.arguments = std::move(arguments);
  step.results = std::move(results);
  return step;
}

Step CallOf(const std::string& name, int operand, int result) {
  Step step = StepOf(Step::Kind::kCall, {Slot{operand}}, {result});
  step.op = FindOperator(name);
  return step;
}

// Calls a callable twice that negates and takes exponents.
Program CallTwice() {
  auto callable = std::make_shared<Callable>();
  callable->arguments = 1;
  callable->slots = 3;
  callable->steps = {CallOf("neg", 0, 1), CallOf("exp", 0, 2)};
  callable->outputs = {1, 2};
  Program program;
  program.steps = {
      StepOf(Step::Kind::kUpload, {c10::IValue(at::ones({2}))}, {0})};
  for (int call = 0; call < 2; ++call) {
    Step& step = program.steps.emplace_back(StepOf(
        Step::Kind::kCallable, {SlotList{{0}}, SlotList{}, c10::IValue()},
        {1 + 2 * call, 2 + 2 * call}));
    step.callable = callable;
  }
  program.slots = 5;
  return program;
}

TEST(ShrinkTest, TakesStepsOutThatAreOfNoMatter) {
  const Program shrunk =
      Shrink(CallTwice(), kAttempts, [](const Program& program) {
        return !program.steps.empty() &&
               program.steps.back().callable != nullptr;
      });
  ASSERT_EQ(shrunk.steps.size(), 1u);
}

TEST(ShrinkTest, TakesStepsOutOfACallableForAllItsCalls) {
  const Program shrunk =
      Shrink(CallTwice(), kAttempts, [](const Program& program) {
        int calls = 0;
        for (const Step& step : program.steps) {
          if (step.callable == nullptr) continue;
          calls += !step.callable->steps.empty() &&
                   step.callable->steps.back().name() == "exp";
        }
        return calls == 2;
      });
  ASSERT_EQ(shrunk.steps.size(), 2u);
  EXPECT_EQ(Print(shrunk),
            "  callable0 of v0:\n"
            "    v2 = exp(v0)\n"
            "    return v2\n"
            "  0: v2 = callable0([v0])\n"
            "  1: v4 = callable0([v0])\n");
}

}  // namespace
}  // namespace djinn::random_programs
