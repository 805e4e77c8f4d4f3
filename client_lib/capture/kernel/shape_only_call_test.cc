// Tests the shapes that PyTorch's composites infer, and the operators that are
// captured for composites.
#include <torch/torch.h>

#include <vector>

#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "djinn/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

using ShapeOnlyCallTest = CaptureTest;

TEST_F(ShapeOnlyCallTest, CompositeIsCapturedWholeWithoutGradient) {
  const c10::InferenceMode inference;
  at::Tensor x = Remote({2, 5, 8}), w = Remote({3, 8}), bias = Remote({3});
  ExpectSameMetadata(at::linear(x, w, bias), at::zeros({2, 5, 3}));
  at::layer_norm(x, {8});
  at::softmax(x, -1);
  at::matmul(x, w.t());
  EXPECT_THAT(recorder_->TakeNames(),
              ElementsAre("aten::linear", "aten::layer_norm",
                          "aten::softmax.int", "aten::matmul"));
}

// The CPU's matrix products use a lazily conjugated matrix directly, which
// gives other bits than conjugating the matrix first.
TEST_F(ShapeOnlyCallTest, CompositeOfLazyOperandsIsSplit) {
  const at::NoGradGuard no_gradient;
  const at::Tensor x =
      at::empty({3, 4}, at::dtype(at::kComplexFloat).device(device_));
  at::matmul(x.mH(), x);
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::mm"));
}

TEST_F(ShapeOnlyCallTest, CompositeIsSplitForAGradient) {
  at::Tensor x = Remote({5, 8}), w = Remote({3, 8}).requires_grad_();
  at::Tensor y = at::linear(x, w);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_THAT(recorder_->TakeNames(), Not(Contains("aten::linear")));
  y.sum().backward();
  EXPECT_EQ(w.grad().sizes(), w.sizes());
  EXPECT_EQ(w.grad().device(), device_);
}

TEST_F(ShapeOnlyCallTest, EinsumOfOneOperandIsAView) {
  const at::NoGradGuard no_grad;
  at::Tensor a = Remote({3, 4});
  const at::Tensor view = at::einsum("ij->ji", {a});
  EXPECT_TRUE(view.is_view());
  EXPECT_TRUE(view.is_alias_of(a));
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  at::einsum("ij,kj->ik", {a, a});
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::einsum"));
}

TEST_F(ShapeOnlyCallTest, MaskThatDoesNotBroadcastThrows) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({2, 3, 4, 8}), mask = Remote({5, 4});
  EXPECT_THROW(at::scaled_dot_product_attention(x, x, x, mask), c10::Error);
  at::scaled_dot_product_attention(x, x, x, mask.slice(0, 0, 4));
}

TEST_F(ShapeOnlyCallTest, EncoderBlockHasTheCpusMetadata) {
  const c10::InferenceMode inference;
  const auto block = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    at::Tensor ids = at::zeros({2, 7}, options.dtype(at::kLong));
    at::Tensor table = at::zeros({11, 8}, options);
    at::Tensor x = at::embedding(table, ids);
    at::Tensor heads = x.view({2, 7, 2, 4}).transpose(1, 2);
    at::Tensor mask = at::zeros({2, 1, 1, 7}, options.dtype(at::kBool));
    at::Tensor attended =
        at::scaled_dot_product_attention(heads, heads, heads, mask);
    at::Tensor merged = attended.transpose(1, 2).contiguous().view({2, 7, 8});
    at::Tensor normed = at::layer_norm(at::gelu(merged) + x, {8});
    at::Tensor picked = at::where(normed > 0, normed, at::zeros({}, options));
    at::Tensor pooled = picked.sum(1) / picked.norm(2, -1, true).sum(1);
    return std::vector<at::Tensor>{x,
                                   attended,
                                   normed,
                                   picked,
                                   pooled,
                                   at::cat({x, normed}, -1),
                                   at::arange(5, options)};
  };
  const uint64_t synchronous = SynchronousCalls().size();
  const std::vector<at::Tensor> remote = block(device_);
  const std::vector<at::Tensor> cpu = block(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
  EXPECT_EQ(SynchronousCalls().size(), synchronous);
}

}  // namespace
}  // namespace djinn::capture
