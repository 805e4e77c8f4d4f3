#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(PoolingRulesTest, AdaptiveAverage) {
  for (const at::Tensor& x : Layouts({2, 3, 6, 5})) {
    CheckRule("aten::_adaptive_avg_pool2d", {x, Ints({1, 1})});
    CheckRule("aten::_adaptive_avg_pool2d", {x, Ints({3, 2})});
    for (const at::Tensor& grad : Layouts({2, 3, 3, 2})) {
      CheckRule("aten::_adaptive_avg_pool2d_backward", {grad, x});
    }
  }
  for (const at::Tensor& x : Layouts({3, 6, 5})) {
    CheckRule("aten::_adaptive_avg_pool2d", {x, Ints({3, 2})});
    CheckRule("aten::_adaptive_avg_pool2d_backward", {Make({3, 3, 2}), x});
  }
  for (const at::Tensor& x : Layouts({2, 3, 4, 6, 5})) {
    CheckRule("aten::_adaptive_avg_pool3d", {x, Ints({1, 3, 2})});
    CheckRule("aten::_adaptive_avg_pool3d_backward",
              {Make({2, 3, 1, 3, 2}), x});
  }
  for (const at::Tensor& x : Layouts({3, 4, 6, 5})) {
    CheckRule("aten::_adaptive_avg_pool3d", {x, Ints({1, 3, 2})});
  }
}

TEST(PoolingRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::_adaptive_avg_pool2d", {Make({3, 4}), Ints({1, 1})});
  CheckRejected("aten::_adaptive_avg_pool2d",
                {Make({2, 3, 0, 4}), Ints({1, 1})});
  CheckRejected("aten::_adaptive_avg_pool3d",
                {Make({3, 4, 5}), Ints({1, 1, 1})});
}

}  // namespace
}  // namespace djinn
