#include "tests/random_programs/lane_thread.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "gtest/gtest.h"

namespace djinn::random_programs {
namespace {

// Returns the gradient of the weight of a chain of five layers. The thread
// `last` makes the last layer, and the thread `first` the others.
at::Tensor GradientOfAChain(LaneThread* first, LaneThread* last) {
  at::manual_seed(3);
  const at::Tensor weight = at::randn({32, 32}).requires_grad_(true);
  at::Tensor chain = at::randn({5, 32});
  const auto add_layer = [&] { chain = chain.mm(weight.t()).tanh(); };
  for (int i = 0; i < 4; ++i) first->Run(add_layer);
  last->Run(add_layer);
  torch::autograd::backward({chain}, {at::ones_like(chain)});
  return weight.grad();
}

at::Tensor GradientOfOneThread() {
  LaneThread only;
  return GradientOfAChain(&only, &only);
}

at::Tensor GradientOfTwoThreads() {
  LaneThread first, last;
  return GradientOfAChain(&first, &last);
}

// The result does not depend on timing: each variant has the same bits in every
// run.
TEST(LaneThreadTest, SumsOfGradientsDependOnWhichThreadMadeWhichNode) {
  const at::Tensor of_one = GradientOfOneThread();
  const at::Tensor of_two = GradientOfTwoThreads();
  EXPECT_FALSE(at::equal(of_one, of_two));
  EXPECT_TRUE(at::allclose(of_one, of_two));
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(at::equal(GradientOfOneThread(), of_one));
    EXPECT_TRUE(at::equal(GradientOfTwoThreads(), of_two));
  }
}

}  // namespace
}  // namespace djinn::random_programs
