// Tests products with prepacked copies of weights: they equal PyTorch's, no
// change of a weight leaves an old copy in use, and the copies stay within
// their limits.
#include "gpu_worker/device/cpu/prepacked_linear.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/randn.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/fake_spare_memory.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kIn = 512, kOut = 256, kRows = 4;
constexpr uint64_t kBytes = kIn * kOut * sizeof(float);
static_assert(kIn * kOut == PrepackedLinear::kLeastElements);
// Slots are in the order of linear's arguments.
constexpr size_t kWeightSlot = 1;

struct Program {
  EncodedCall call;
  std::unique_ptr<CompiledProgram> compiled;
};

class PrepackedLinearTest : public testing::Test {
 protected:
  void SetUp() override { tester_.device()->SetSpareMemory(&spare_); }
  void TearDown() override { tester_.device()->SetSpareMemory(nullptr); }

  Program Compile(const std::string& name, const std::string& overload,
                  torch::jit::Stack arguments) {
    const c10::InferenceMode inference;
    const c10::OperatorHandle op = FindOperator(name, overload);
    arguments = WithDefaults(op, std::move(arguments));
    torch::jit::Stack stack = arguments;
    for (c10::IValue& value : stack) {
      if (value.isTensor()) value = value.toTensor().clone();
    }
    op.callBoxed(&stack);
    std::vector<at::Tensor> results;
    if (op.schema().returns()[0].alias_info() == nullptr) {
      results.push_back(stack[0].toTensor());
    }
    Program program;
    program.call = tester_.Encode(name, overload, arguments, results);
    program.compiled = tester_.library()->Compile(program.call.graph).value();
    return program;
  }
  Program Linear() {
    return Compile(
        "aten::linear", "",
        {at::randn({kRows, kIn}), at::randn({kOut, kIn}), at::randn({kOut})});
  }

  // Runs the program in both modes, and expects the fast result to be close to
  // the strict one. Returns whether the fast run used a packed copy.
  bool UsesCopy(const Program& program) {
    const c10::InferenceMode inference;
    ExecutionPath way = ExecutionPath::kPlain;
    NodeInput input = program.call.input();
    input.tenant = &tenant_;
    std::vector<NodeResult> fast, strict;
    EXPECT_TRUE(program.compiled->Execute(0, input, &strict).ok());
    input.fast = true;
    input.way = &way;
    EXPECT_TRUE(program.compiled->Execute(0, input, &fast).ok());
    if (fast.size() == 1 && strict.size() == 1) {
      EXPECT_EQ(fast[0].view, strict[0].view);
      EXPECT_TRUE(at::allclose(ProgramTester::TensorOf(fast[0]),
                               ProgramTester::TensorOf(strict[0]), 1e-4, 1e-4));
    } else {
      ADD_FAILURE() << "no results";
    }
    return way == ExecutionPath::kPacked;
  }
  // Returns how many fast runs it takes until one uses a copy; -1 after `most`.
  int64_t RunsUntilPacked(const Program& program, int64_t most = 100) {
    for (int64_t i = 1; i <= most; ++i) {
      if (UsesCopy(program)) return i;
    }
    return -1;
  }
  void Write(const Program& program) {
    Program write =
        Compile("aten::mul_", "Scalar", {at::randn({kOut, kIn}), 2.0});
    write.call.slots[0] = program.call.slots[kWeightSlot];
    std::vector<NodeResult> results;
    ASSERT_TRUE(write.compiled->Execute(0, write.call.input(), &results).ok());
  }

  const std::string tenant_ = "tenant";
  FakeSpareMemory spare_;
  ProgramTester tester_{{.packed_weight_bytes = 3 * kBytes}};
};

TEST_F(PrepackedLinearTest, EveryKindOfProductIsPacked) {
  const at::Tensor rows = at::randn({kRows, kIn});
  const at::Tensor weight = at::randn({kOut, kIn});
  const at::Tensor bias = at::randn({kOut});
  const at::Tensor wide = at::randn({kIn, kOut});
  const std::vector<torch::jit::Stack> linear = {
      {rows, weight, bias},
      {rows, weight, c10::IValue()},
      {at::randn({2, 3, kIn}), weight, bias}};
  for (const torch::jit::Stack& arguments : linear) {
    const Program program = Compile("aten::linear", "", arguments);
    EXPECT_EQ(RunsUntilPacked(program), PrepackedLinear::kUses);
    EXPECT_EQ(spare_.used(), kBytes);
    tester_.device()->ReleaseSpareMemory(kBytes);
  }
  const std::vector<std::pair<std::string, torch::jit::Stack>> others = {
      {"aten::addmm", {bias, rows, weight.t()}},
      {"aten::addmm", {bias, rows, wide}},
      {"aten::mm", {rows, wide}},
      {"aten::matmul", {at::randn({2, 3, kIn}), wide}},
      // The rows belong to a wider matrix.
      {"aten::mm", {at::randn({kRows, 2 * kIn}).narrow(1, 3, kIn), wide}}};
  for (const auto& [name, arguments] : others) {
    const Program program = Compile(name, "", arguments);
    EXPECT_EQ(RunsUntilPacked(program), PrepackedLinear::kUses) << name;
    tester_.device()->ReleaseSpareMemory(kBytes);
  }
}

TEST_F(PrepackedLinearTest, OtherProductsAreNotPacked) {
  const at::Tensor rows = at::randn({kRows, kIn});
  const at::Tensor weight = at::randn({kOut, kIn});
  const std::vector<std::pair<std::string, torch::jit::Stack>> calls = {
      {"aten::addmm", {at::randn({kOut}), rows, weight.t(), 2, 1}},
      {"aten::addmm", {at::randn({kOut}), rows, weight.t(), 1, 0.5}},
      {"aten::addmm", {at::randn({kRows, kOut}), rows, weight.t()}},
      {"aten::mm", {at::randn({kIn, kRows}).t(), weight.t()}},
      {"aten::mm", {rows.to(at::kDouble), weight.to(at::kDouble).t()}},
      {"aten::linear", {at::randn({kIn}), weight, at::randn({kOut})}},
      {"aten::linear", {at::randn({1, kIn}), weight, at::randn({kOut})}},
      {"aten::linear",
       {rows, weight.narrow(0, 0, kOut - 1), at::randn({kOut - 1})}}};
  for (const auto& [name, arguments] : calls) {
    EXPECT_EQ(RunsUntilPacked(Compile(name, "", arguments), 10), -1) << name;
  }
  EXPECT_EQ(spare_.used(), 0u);
}

TEST_F(PrepackedLinearTest, AWrittenWeightIsNotReadFromItsCopy) {
  const Program program = Linear();
  ASSERT_EQ(RunsUntilPacked(program), PrepackedLinear::kUses);
  Write(program);
  EXPECT_EQ(spare_.used(), 0u);
  // A weight that is written now and then is packed less and less often.
  EXPECT_EQ(RunsUntilPacked(program),
            PrepackedLinear::kUses * PrepackedLinear::kSetback);
}

TEST_F(PrepackedLinearTest, AWeightThatIsWrittenBetweenUsesIsNeverPacked) {
  const Program program = Linear();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(UsesCopy(program));
    Write(program);
  }
}

TEST_F(PrepackedLinearTest, ACopyBelongsToOneBufferAndGoesWithIt) {
  {
    Program program = Linear();
    ASSERT_EQ(RunsUntilPacked(program), PrepackedLinear::kUses);
    const std::shared_ptr<Buffer> before = program.call.slots[kWeightSlot];
    program.call.slots[kWeightSlot] = Linear().call.slots[kWeightSlot];
    EXPECT_FALSE(UsesCopy(program));
    program.call.slots[kWeightSlot] = before;
    EXPECT_TRUE(UsesCopy(program));
  }
  EXPECT_EQ(spare_.used(), 0u);
}

TEST_F(PrepackedLinearTest, MemoryIsTheTenantsAndIsReleasedOldestFirst) {
  const Program first = Linear(), second = Linear();
  ASSERT_NE(RunsUntilPacked(first), -1);
  ASSERT_NE(RunsUntilPacked(second), -1);
  EXPECT_EQ(spare_.tenants, std::vector<std::string>(2, tenant_));
  EXPECT_EQ(spare_.used(), 2 * kBytes);
  EXPECT_EQ(tester_.device()->ReleaseSpareMemory(1), kBytes);
  EXPECT_FALSE(UsesCopy(first));
  EXPECT_TRUE(UsesCopy(second));
  EXPECT_EQ(tester_.device()->ReleaseSpareMemory(UINT64_MAX), kBytes);
  EXPECT_EQ(spare_.used(), 0u);
}

TEST_F(PrepackedLinearTest, WithoutSpareMemoryProductsStayPlain) {
  spare_.limit = kBytes - 1;
  const Program program = Linear();
  EXPECT_EQ(RunsUntilPacked(program, 10), -1);
  spare_.limit = kBytes;
  EXPECT_NE(RunsUntilPacked(program), -1);
}

TEST_F(PrepackedLinearTest, UnusedCopiesYieldToUsedWeights) {
  const Program old = Linear();
  ASSERT_NE(RunsUntilPacked(old), -1);
  std::vector<Program> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(Linear());
    EXPECT_NE(RunsUntilPacked(others.back()), -1);
  }
  EXPECT_EQ(spare_.used(), 3 * kBytes);
  EXPECT_FALSE(UsesCopy(old));
}

TEST_F(PrepackedLinearTest, CanBeSwitchedOff) {
  ProgramTester plain({.packed_weights = false});
  Program program = Linear();
  program.compiled = plain.library()->Compile(program.call.graph).value();
  EXPECT_EQ(RunsUntilPacked(program, 10), -1);
}

}  // namespace
}  // namespace djinn::worker
