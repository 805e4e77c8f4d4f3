// Tests that products of several runs with one weight are joined through the
// operator library.
#include "gpu_worker/device/torch/row_products.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/addmm.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kIn = 512, kOut = 256;

class RowProductsTest : public testing::Test {
 protected:
  // Adds a run of one product. Its weight, the argument `weight` of the call,
  // lies in the same buffer as the other runs' weights.
  void Add(const std::string& name, torch::jit::Stack arguments, size_t weight,
           const at::Tensor& expected) {
    const c10::InferenceMode inference;
    auto run = std::make_unique<Run>();
    run->expected = expected;
    run->call = tester_.Encode(name, "", std::move(arguments), {expected});
    const auto& view =
        std::get<srg::TensorView>(run->call.node().arguments[weight]);
    if (weight_ == nullptr) weight_ = run->call.slots[view.slot];
    run->call.slots[view.slot] = weight_;
    run->program = tester_.library()->Compile(run->call.graph).value();
    run->input.emplace(run->call.input());
    run->input->fast = true;
    run->input->tenant = &tenant_;
    runs_.push_back(std::move(run));
  }
  void AddLinear(const at::Tensor& rows) {
    Add("aten::linear", {rows, matrix_, bias_}, 1,
        at::linear(rows, matrix_, bias_));
  }

  // Returns which runs were joined.
  std::vector<bool> Execute() {
    std::vector<JoinedCall> calls;
    for (const auto& run : runs_) {
      run->results.clear();
      calls.push_back({run->program.get(), 0, &*run->input, &run->results});
    }
    tester_.library()->ExecuteJoined(absl::MakeSpan(calls));
    std::vector<bool> done;
    for (size_t i = 0; i < calls.size(); ++i) {
      done.push_back(calls[i].done);
      EXPECT_EQ(runs_[i]->results.size(), calls[i].done ? 1u : 0u);
    }
    return done;
  }
  at::Tensor Result(size_t run) {
    return ProgramTester::TensorOf(runs_[run]->results.at(0));
  }
  void ExpectAllRight() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const at::Tensor result = Result(i);
      EXPECT_EQ(result.sizes(), runs_[i]->expected.sizes());
      EXPECT_EQ(result.strides(), runs_[i]->expected.strides());
      EXPECT_TRUE(at::allclose(result, runs_[i]->expected, 1e-4, 1e-4)) << i;
    }
  }

  struct Run {
    EncodedCall call;
    std::unique_ptr<CompiledProgram> program;
    at::Tensor expected;
    std::optional<NodeInput> input;
    std::vector<NodeResult> results;
  };

  ProgramTester tester_;
  const std::string tenant_ = "t";
  const at::Tensor matrix_ = at::randn({kOut, kIn});
  const at::Tensor bias_ = at::randn({kOut});
  std::shared_ptr<Buffer> weight_;
  std::vector<std::unique_ptr<Run>> runs_;
};

TEST_F(RowProductsTest, EachGetsItsRowsOfTheProduct) {
  AddLinear(at::randn({1, 1, kIn}));
  AddLinear(at::randn({3, kIn}));
  // These rows are not contiguous.
  AddLinear(at::randn({2, 2 * kIn}).narrow(1, 5, kIn));
  // The first calls are plain, later ones use a packed weight.
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Execute(), std::vector<bool>(3, true));
    ExpectAllRight();
  }
}

TEST_F(RowProductsTest, TakesEveryKindOfProduct) {
  const at::Tensor weight = at::randn({kIn, kOut});
  const auto rows = [] { return at::randn({2, kIn}); };
  for (int i = 0; i < 2; ++i) {
    const at::Tensor a = rows(), b = at::randn({1, 2, kIn});
    Add("aten::mm", {a, weight}, 1, at::matmul(a, weight));
    Add("aten::matmul", {b, weight}, 1, at::matmul(b, weight));
  }
  EXPECT_EQ(Execute(), std::vector<bool>(4, true));
  ExpectAllRight();
  runs_.clear();
  weight_ = nullptr;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor a = rows();
    Add("aten::addmm", {bias_, a, weight}, 2, at::addmm(bias_, a, weight));
  }
  EXPECT_EQ(Execute(), std::vector<bool>(2, true));
  ExpectAllRight();
}

TEST_F(RowProductsTest, ResultsAreInMemoryOfTheirOwn) {
  for (int i = 0; i < 2; ++i) AddLinear(at::randn({1, kIn}));
  Execute();
  const at::Tensor first = Result(0).clone();
  const at::Tensor second = Result(1).clone();
  Execute();
  EXPECT_EQ(runs_[0]->results[0].buffer->size_bytes(), kOut * sizeof(float));
  EXPECT_NE(runs_[0]->results[0].buffer, runs_[1]->results[0].buffer);
  const c10::InferenceMode inference;
  Result(0).fill_(7);
  EXPECT_TRUE(at::allclose(Result(1), second, 1e-4, 1e-4));
}

TEST_F(RowProductsTest, NonFiniteValuesStayInTheirRun) {
  for (int i = 0; i < 3; ++i) AddLinear(at::randn({2, kIn}));
  at::Tensor broken = at::randn({2, kIn});
  broken[0][0] = std::numeric_limits<float>::quiet_NaN();
  broken[1][7] = std::numeric_limits<float>::infinity();
  AddLinear(broken);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Execute(), std::vector<bool>(4, true));
    for (size_t run = 0; run < 3; ++run) {
      ASSERT_TRUE(at::allclose(Result(run), runs_[run]->expected, 1e-4, 1e-4));
    }
    ASSERT_TRUE(std::isnan(Result(3)[0][0].item<float>()));
  }
}

TEST_F(RowProductsTest, EachRunHasItsOwnBias) {
  AddLinear(at::randn({1, kIn}));
  const at::Tensor rows = at::randn({1, kIn});
  const at::Tensor other = at::randn({kOut});
  Add("aten::linear", {rows, matrix_, other}, 1,
      at::linear(rows, matrix_, other));
  Add("aten::linear", {rows, matrix_, c10::IValue()}, 1,
      at::linear(rows, matrix_));
  EXPECT_EQ(Execute(), std::vector<bool>(3, true));
  ExpectAllRight();
}

TEST_F(RowProductsTest, AMissingOperandLeavesAllCallsUndone) {
  AddLinear(at::randn({1, kIn}));
  AddLinear(at::randn({1, kIn}));
  runs_[1]->call.slots[0] = nullptr;
  EXPECT_EQ(Execute(), std::vector<bool>(2, false));
}

TEST_F(RowProductsTest, OneAloneIsLeftAlone) {
  AddLinear(at::randn({1, kIn}));
  EXPECT_EQ(Execute(), std::vector<bool>{false});
}

TEST_F(RowProductsTest, ListsWhatGains) {
  AddLinear(at::randn({RowsByMatrix::kMaxJoinedRows, kIn}));
  ASSERT_EQ(runs_[0]->program->products().size(), 1u);
  EXPECT_EQ(runs_[0]->program->products()[0].rows,
            RowsByMatrix::kMaxJoinedRows);
  AddLinear(at::randn({RowsByMatrix::kMaxJoinedRows + 1, kIn}));
  EXPECT_TRUE(runs_[1]->program->products().empty());
  weight_ = nullptr;
  const at::Tensor rows = at::randn({1, 64}), small = at::randn({64, 64});
  Add("aten::mm", {rows, small}, 1, at::matmul(rows, small));
  EXPECT_TRUE(runs_[2]->program->products().empty());
}

TEST_F(RowProductsTest, CopiesOnlyWhatIsSmall) {
  constexpr int64_t kMost = RowsByMatrix::kMaxCopied;
  const auto add = [this](int64_t rows, int64_t depth, int64_t width) {
    weight_ = nullptr;
    const at::Tensor a = at::randn({rows, depth}),
                     b = at::randn({depth, width});
    Add("aten::mm", {a, b}, 1, at::matmul(a, b));
    return !runs_.back()->program->products().empty();
  };
  EXPECT_TRUE(add(16, kMost / 16 - 1, 1));
  EXPECT_FALSE(add(16, kMost / 16, 1));
  EXPECT_TRUE(add(2, 1, kMost / 2 - 1));
  EXPECT_FALSE(add(2, 1, kMost / 2));
}

TEST_F(RowProductsTest, OnlyEqualViewsOfAWeightAreAlike) {
  AddLinear(at::randn({1, kIn}));
  AddLinear(at::randn({2, kIn}));
  const at::Tensor rows = at::randn({1, kIn}), half = matrix_.narrow(0, 0, 100);
  Add("aten::linear", {rows, half, c10::IValue()}, 1, at::linear(rows, half));
  const auto kind = [&](size_t run) {
    return runs_[run]->program->products()[0].kind;
  };
  EXPECT_EQ(kind(0), kind(1));
  EXPECT_NE(kind(0), kind(2));
}

}  // namespace
}  // namespace djinn::worker
