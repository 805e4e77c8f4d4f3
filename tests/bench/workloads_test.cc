// Tests that the workloads tell a right result from a stale one.
#include "tests/bench/workloads.h"

#include "ATen/TensorOperators.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tensor.h"
#include "gtest/gtest.h"

namespace djinn::bench {
namespace {

TEST(ChainTest, EveryChainEndsInAFiniteResultThatDependsOnItsStart) {
  for (const bool gradients : {false, true}) {
    const auto start = [gradients](int round) {
      return MakeChainStart(round, at::kCPU, gradients);
    };
    const ChainOperands operands = MakeChainOperands(at::kCPU, gradients);
    for (const Chain& chain : Chains()) {
      const at::Tensor a = chain.run(start(0), operands, 0);
      const at::Tensor b = chain.run(start(1), operands, 1);
      const at::Tensor again = chain.run(start(0), operands, 0);
      EXPECT_EQ(a.numel(), kChainRows * kChainColumns) << chain.op;
      EXPECT_TRUE(a.isfinite().all().item<bool>()) << chain.op;
      EXPECT_GT(a.abs().max().item<double>(), 0.1) << chain.op;
      EXPECT_LT(a.abs().max().item<double>(), 1e4) << chain.op;
      EXPECT_GT((a - b).abs().max().item<double>(), 0.05) << chain.op;
      EXPECT_TRUE(a.equal(again)) << chain.op;
    }
  }
}

TEST(MlpTest, LearnsAndIsTheSameEveryTime) {
  Mlp mlp(at::kCPU), twin(at::kCPU);
  const at::Tensor inputs = at::ones({8, kMlpInputs});
  const at::Tensor labels = at::tensor({3, 3, 3, 3, 3, 3, 3, 3}, at::kLong);
  const float first = mlp.Step(inputs, labels);
  EXPECT_EQ(twin.Step(inputs, labels), first);
  float last = first;
  for (int i = 0; i < 20; ++i) last = mlp.Step(inputs, labels);
  EXPECT_LT(last, first / 10);
}

}  // namespace
}  // namespace djinn::bench
