// Tests which composites are split, and into what, and how lists over devices
// and new memory are captured.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_safe_softmax.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

class SplitRuleTest : public CaptureTest {
 protected:
  // Returns what linear() without bias records, in each gradient mode that
  // records no gradient.
  std::vector<std::vector<std::string>> NamesOfLinear(const at::Tensor& rows,
                                                      bool requires_grad) {
    const at::Tensor weight = Remote({10, 64}).requires_grad_(requires_grad);
    std::vector<std::vector<std::string>> names;
    recorder_->TakeCalls();
    {
      const at::NoGradGuard no_grad;
      at::linear(rows, weight);
      names.push_back(recorder_->TakeNames());
    }
    const c10::InferenceMode inference;
    at::linear(rows, weight);
    names.push_back(recorder_->TakeNames());
    return names;
  }
};

TEST_F(SplitRuleTest, AttentionWithReducedSumsIsSplitDownToItsProducts) {
  const at::Tensor x = Remote({2, 2, 5, 8}).to(at::kBFloat16);
  const at::Tensor narrow = Remote({2, 2, 5, 6}).to(at::kBFloat16);
  at::globalContext().setAllowFP16BF16ReductionMathSDP(true);
  const absl::Cleanup reset = [] {
    at::globalContext().setAllowFP16BF16ReductionMathSDP(false);
  };
  const at::NoGradGuard no_grad;
  recorder_->TakeCalls();
  at::scaled_dot_product_attention(x, x, narrow);
  const std::vector<std::string> names = recorder_->TakeNames();
  EXPECT_THAT(names, Not(Contains("aten::scaled_dot_product_attention")));
  EXPECT_THAT(names, Contains("aten::_safe_softmax"));
}

TEST_F(SplitRuleTest, ProductsFoldForGradientsThatAreNotRecorded) {
  const auto folded =
      ElementsAre(ElementsAre("aten::mm"), ElementsAre("aten::mm"));
  const auto whole =
      ElementsAre(ElementsAre("aten::linear"), ElementsAre("aten::linear"));
  const at::Tensor dense = Remote({2, 3, 64});
  const at::Tensor apart = dense.narrow(1, 2, 1);
  // Sizes (2, 1, 64) and strides (64, 1, 1).
  const at::Tensor one = Remote({2, 64, 1}).transpose(1, 2);
  EXPECT_THAT(NamesOfLinear(dense, true), whole);
  EXPECT_THAT(NamesOfLinear(apart, true), folded);
  EXPECT_THAT(NamesOfLinear(one, true), folded);
  for (const at::Tensor& rows : {dense, apart, one}) {
    EXPECT_THAT(NamesOfLinear(rows, false), whole);
  }
}

TEST_F(SplitRuleTest, NetworksAreWholeUnlessTheirFirstProductFolds) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = Remote({2, 7, 32}), h = Remote({1, 7, 8});
  const std::vector<at::Tensor> weights = {Remote({24, 32}).requires_grad_(),
                                           Remote({24, 8}).requires_grad_(),
                                           Remote({24}), Remote({24})};
  const auto run = [&](bool batch_first) {
    recorder_->TakeCalls();
    at::gru(batch_first ? x.transpose(0, 1) : x, h, weights,
            /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0.0,
            /*train=*/false, /*bidirectional=*/false, batch_first);
    return recorder_->TakeNames();
  };
  EXPECT_THAT(run(false), ElementsAre("aten::gru.input"));
  // The transposed input is transposed back, and contiguous again.
  EXPECT_THAT(run(true), ElementsAre("aten::gru.input"));
  at::gru(Remote({7, 2, 32}), h, weights, true, 1, 0.0, false, false,
          /*batch_first=*/true);
  EXPECT_THAT(recorder_->TakeNames(), Contains("aten::mm"));
}

TEST_F(SplitRuleTest, AutocastCastsWithinComposites) {
  const at::Tensor x = Remote({2, 2}).to(at::kBFloat16);
  at::_safe_softmax(x, -1);
  at::_foreach_mul(std::vector<at::Tensor>{x}, 2.0);
  EXPECT_THAT(recorder_->TakeNames(), Contains("aten::_safe_softmax"));
  const absl::Cleanup off = [] {
    at::autocast::set_autocast_enabled(at::kPrivateUse1, false);
    at::autocast::clear_cache();
  };
  at::autocast::set_autocast_enabled(at::kPrivateUse1, true);
  EXPECT_EQ(at::_safe_softmax(x, -1).scalar_type(), at::kFloat);
  EXPECT_THAT(recorder_->TakeNames(), Not(Contains("aten::_safe_softmax")));
  // Autocast casts nothing here.
  at::_foreach_mul(std::vector<at::Tensor>{x}, 2.0);
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::_foreach_mul.Scalar"));
}

TEST_F(SplitRuleTest, ListsOverDevicesAreTakenApart) {
  const at::Tensor here = at::ones({2}), there = Remote({2});
  const std::vector<at::Tensor> mixed = {here, there};
  at::_foreach_mul_(mixed, 3.0);
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::mul_.Scalar"));
  EXPECT_EQ(here[0].item<float>(), 3);
  at::_foreach_copy_(std::vector<at::Tensor>{there},
                     std::vector<at::Tensor>{here});
  EXPECT_THAT(recorder_->uploads(), ElementsAre(8));
  EXPECT_THROW(at::_foreach_copy_(std::vector<at::Tensor>{},
                                  std::vector<at::Tensor>{there}),
               c10::Error);
  EXPECT_THROW(at::_foreach_copy_(std::vector<at::Tensor>{there, there},
                                  std::vector<at::Tensor>{there}),
               c10::Error);
}

TEST_F(SplitRuleTest, NewMemoryIsFilledForDeterministicAlgorithms) {
  const absl::Cleanup off = [] {
    at::globalContext().setDeterministicAlgorithms(false, false);
  };
  Remote({2});
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre());
  at::globalContext().setDeterministicAlgorithms(true, false);
  Remote({2});
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::fill_.Scalar"));
  // Tensors that only describe a shape are not filled.
  const c10::InferenceMode inference;
  at::Tensor sum = at::linear(Remote({2, 3}), Remote({4, 3}));
  EXPECT_THAT(
      recorder_->TakeNames(),
      ElementsAre("aten::fill_.Scalar", "aten::fill_.Scalar", "aten::linear"));
}

}  // namespace
}  // namespace djinn::capture
