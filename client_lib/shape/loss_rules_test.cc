#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(LossRulesTest, Margins) {
  for (int64_t reduction : {0, 1, 2}) {
    for (const at::Tensor& x : Layouts({3, 4})) {
      CheckRule("aten::multi_margin_loss",
                {x, MakeIndex({3}), 1, 1, None(), reduction});
      CheckRule("aten::multilabel_margin_loss_forward",
                {x, MakeIndex({3, 4}), reduction});
      CheckRule("aten::multi_margin_loss_backward",
                {reduction == 0 ? Make({3}) : Make({}), x, MakeIndex({3}), 1, 1,
                 None(), reduction});
      CheckRule("aten::multilabel_margin_loss_backward",
                {reduction == 0 ? Make({3}) : Make({}), x, MakeIndex({3, 4}),
                 reduction, Make({3, 4})});
    }
    CheckRule("aten::multi_margin_loss",
              {Make({4}), MakeIndex({}), 1, 1, None(), reduction});
    CheckRule("aten::multi_margin_loss",
              {Make({4}), MakeIndex({1}), 1, 1, None(), reduction});
    CheckRule("aten::multilabel_margin_loss_forward",
              {Make({4}), MakeIndex({4}), reduction});
  }
  for (const auto& [x, y] : Pairs()) {
    if (x.sizes() != y.sizes()) continue;
    CheckRule("aten::soft_margin_loss_backward", {Make({}), x, y, 1});
    CheckRule("aten::soft_margin_loss_backward", {x, x, y, 0});
  }
}

TEST(LossRulesTest, NegativeLogLikelihoodOfImages) {
  for (int64_t reduction : {0, 1, 2}) {
    for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
      CheckRule("aten::nll_loss2d_forward",
                {x, MakeIndex({2, 4, 5}), None(), reduction, -100});
      const bool dense = x.is_non_overlapping_and_dense();
      const std::vector<c10::IValue> backward = {
          reduction == 0 ? Make({2, 4, 5}) : Make({}),
          x,
          MakeIndex({2, 4, 5}),
          None(),
          reduction,
          -100,
          Make({})};
      if (x.is_contiguous()) {
        CheckRule("aten::nll_loss2d_backward", backward);
      } else if (dense) {
        CheckRejected("aten::nll_loss2d_backward", backward);
      }
    }
  }
}

TEST(LossRulesTest, Ctc) {
  const at::Tensor targets = Make({2, 3}, at::kLong);
  for (const at::Tensor& x : Layouts({6, 2, 5})) {
    CheckRule("aten::_ctc_loss", {x, targets, Ints({6, 5}), Ints({3, 2})});
  }
  const at::Tensor x = Make({6, 2, 5});
  CheckRule("aten::_ctc_loss_backward",
            {Make({2}), x, targets, Ints({6, 5}), Ints({3, 2}), Make({2}),
             Make({2, 6, 7}), 0});
}

TEST(LossRulesTest, GatedLinearUnitBackward) {
  for (const at::Tensor& x : Layouts({2, 3, 4})) {
    CheckRule("aten::glu_backward", {Make({2, 3, 2}), x, -1});
  }
}

TEST(LossRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::multi_margin_loss", {Make({3, 4}), MakeIndex({2})});
  CheckRejected("aten::multilabel_margin_loss_forward",
                {Make({3, 4}), MakeIndex({3, 3}), 1});
  CheckRejected("aten::nll_loss2d_forward",
                {Make({2, 3, 4, 5}), MakeIndex({2, 4, 4}), None(), 1, -100});
  CheckRejected("aten::_ctc_loss", {Make({6, 2, 5}), Make({2, 3}, at::kLong),
                                    Ints({6}), Ints({3, 2})});
}

}  // namespace
}  // namespace djinn
