#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using at::ScalarType;

TEST(PointwiseRulesTest, UnaryOperatorsFollowTheirOperand) {
  for (const char* name :
       {"aten::relu", "aten::abs", "aten::angle", "aten::hardtanh",
        "aten::hardswish", "aten::logit", "aten::isnan", "aten::isinf",
        "aten::logical_not", "aten::nan_to_num", "aten::deg2rad",
        "aten::rad2deg", "aten::log_sigmoid_forward"}) {
    SCOPED_TRACE(name);
    for (const at::Tensor& x : Zoo()) CheckRule(name, {x});
  }
}

TEST(PointwiseRulesTest, UnaryOperatorsPromoteIntegers) {
  for (ScalarType dtype : {at::kLong, at::kInt, at::kByte, at::kHalf}) {
    for (const at::Tensor& x : Layouts({2, 3, 4}, dtype)) {
      for (const char* name :
           {"aten::relu", "aten::abs", "aten::angle", "aten::logit",
            "aten::isnan", "aten::isinf", "aten::logical_not",
            "aten::nan_to_num", "aten::deg2rad"}) {
        if (dtype == at::kByte && std::string(name) == "aten::deg2rad")
          continue;
        CheckRule(name, {x});
      }
    }
  }
}

TEST(PointwiseRulesTest, MagnitudeAndPhaseOfComplexAreReal) {
  for (const at::Tensor& x : Zoo(at::kComplexFloat)) {
    CheckRule("aten::abs", {x});
    CheckRule("aten::angle", {x});
    CheckRule("aten::isnan", {x});
    CheckRule("aten::isinf", {x});
    CheckRule("aten::logical_not", {x});
  }
}

TEST(PointwiseRulesTest, BinaryOperatorsBroadcast) {
  for (const char* name :
       {"aten::rsub.Tensor", "aten::floor_divide", "aten::logical_and",
        "aten::logical_or", "aten::logical_xor"}) {
    SCOPED_TRACE(name);
    for (const auto& [x, y] : Pairs()) CheckRule(name, {x, y});
  }
}

TEST(PointwiseRulesTest, BinaryOperatorsPromote) {
  for (auto [left, right] : std::vector<std::pair<ScalarType, ScalarType>>{
           {at::kFloat, at::kDouble},
           {at::kLong, at::kFloat},
           {at::kHalf, at::kBFloat16},
           {at::kInt, at::kLong}}) {
    for (const auto& [x, y] : Pairs(left, right)) {
      for (const char* name :
           {"aten::rsub.Tensor", "aten::floor_divide", "aten::logical_and"}) {
        CheckRule(name, {x, y});
      }
    }
  }
  for (const at::Tensor& x : Zoo(at::kLong)) {
    CheckRule("aten::rsub.Tensor", {x, MakeNumber(2)});
    CheckRule("aten::rsub.Scalar", {x, 2.5});
    CheckRule("aten::rsub.Scalar", {x, 2});
    CheckRule("aten::__lshift__.Scalar", {x, 1});
    CheckRule("aten::__rshift__.Scalar", {x, 1});
    CheckRule("aten::__lshift__.Scalar", {x.to(at::kBool), 1});
    CheckRule("aten::remainder.Scalar_Tensor", {2.5, x});
    CheckRule("aten::remainder.Scalar", {x, 2.5});
  }
  for (const auto& [x, y] : Pairs(at::kLong, at::kInt)) {
    CheckRule("aten::__lshift__.Tensor", {x, y});
    CheckRule("aten::__rshift__.Tensor", {x, y});
  }
}

TEST(PointwiseRulesTest, WhereFollowsThreeOperands) {
  for (const auto& [x, y] : Pairs()) {
    for (const at::Tensor& c : Layouts({4}, at::kBool)) {
      if (x.dim() == 3 && y.dim() > 0 && x.numel() > 0) {
        CheckRule("aten::where.self", {c, x, y});
      }
    }
    CheckRule("aten::where.self", {Make({}, at::kBool), x, y});
    CheckRule("aten::where.self", {x.to(at::kBool), x, y});
    CheckRule("aten::where.self", {y.to(at::kBool), x, y});
  }
  for (const auto& [c, x] : Pairs(at::kBool, at::kLong)) {
    CheckRule("aten::where.self", {c, x, x.to(at::kFloat)});
    CheckRule("aten::where.self", {c, x, MakeNumber(1.5)});
    CheckRule("aten::where.ScalarOther", {c, x, 1.5});
    CheckRule("aten::where.ScalarOther", {c, x, 1});
    CheckRule("aten::where.ScalarSelf", {c, 1.5, x});
    CheckRule("aten::where.Scalar", {c, 1.5, 2});
    CheckRule("aten::where.Scalar", {c, 1, 2});
  }
}

TEST(PointwiseRulesTest, ComplexFromParts) {
  for (const auto& [x, y] : Pairs()) {
    CheckRule("aten::complex", {x, y});
    CheckRule("aten::polar", {x, y});
  }
}

TEST(PointwiseRulesTest, Prelu) {
  for (const auto& [x, y] : Pairs()) {
    CheckRule("aten::_prelu_kernel", {x, y});
    if (x.sizes() == y.sizes()) {
      CheckRule("aten::_prelu_kernel_backward", {x, y, Make({1})});
    }
  }
}

TEST(PointwiseRulesTest, Gradients) {
  for (const auto& [x, y] : Pairs()) {
    if (x.sizes() != y.sizes()) continue;
    CheckRule("aten::hardtanh_backward", {x, y, -1, 1});
    CheckRule("aten::hardswish_backward", {x, y});
    CheckRule("aten::_standard_gamma_grad", {x, y});
    CheckRule("aten::_dirichlet_grad", {x, y, x});
    CheckRule("aten::log_sigmoid_backward", {x, y, y.contiguous()});
    CheckRule("aten::native_dropout_backward", {x, y.to(at::kBool), 2.0});
    CheckRule("aten::native_dropout_backward",
              {x.to(at::kLong), y.to(at::kBool), 2.0});
    CheckRule("aten::binary_cross_entropy_backward", {x, x, y, None(), 0});
    CheckRule("aten::mse_loss_backward", {x, x, y, 0});
  }
}

TEST(PointwiseRulesTest, GradientsOfLossesTakeTheSizesOfAllOperands) {
  for (const auto& [x, y] : Pairs()) {
    for (const at::Tensor& grad : {Make({}), x, y}) {
      CheckRule("aten::mse_loss_backward", {grad, x, y, 0});
      CheckRule("aten::huber_loss_backward", {grad, x, y, 0, 1.0});
      CheckRule("aten::smooth_l1_loss_backward", {grad, x, y, 0, 1.0});
    }
  }
}

TEST(PointwiseRulesTest, AssertionsReturnNothing) {
  CheckRule("aten::_assert_async", {Make({1})});
  CheckRule("aten::_assert_async.msg", {Make({1}), "message"});
}

TEST(PointwiseRulesTest, MantissasAndExponents) {
  for (const at::Tensor& x : Zoo()) CheckRule("aten::frexp.Tensor", {x});
  CheckRejected("aten::frexp.Tensor", {Make({3}, at::kLong)});
}

TEST(PointwiseRulesTest, Dropout) {
  for (const at::Tensor& x : Zoo()) {
    for (double p : {0.0, 0.3, 1.0}) {
      for (bool train : {false, true}) {
        CheckRule("aten::dropout", {x, p, train});
        CheckRule("aten::native_dropout", {x, p, train});
      }
    }
    CheckRule("aten::native_dropout", {x, 0.5, None()});
    for (bool train : {false, true}) {
      CheckRule("aten::rrelu_with_noise",
                {x, Make(x.sizes()), 0.1, 0.3, train});
    }
  }
}

TEST(PointwiseRulesTest, LimitsOfAnUnsignedType) {
  const at::Tensor bytes = Make({3}, at::kByte);
  CheckRule("aten::hardtanh", {bytes, 0, 6});
  CheckRejected("aten::hardtanh", {bytes, -1, 1});
}

TEST(PointwiseRulesTest, Losses) {
  const at::Tensor nothing = Make({3, 4}).slice(1, 1, 1, 2);
  CheckRule("aten::binary_cross_entropy_with_logits",
            {nothing, nothing, None(), None(), 0});
  for (const auto& [x, y] : Pairs()) {
    for (int64_t reduction : {0, 1, 2}) {
      CheckRule("aten::huber_loss", {x, y, reduction});
      if (x.sizes() != y.sizes()) continue;
      CheckRule("aten::binary_cross_entropy", {x, y, None(), reduction});
      CheckRule("aten::binary_cross_entropy", {x, y, y, reduction});
      CheckRule("aten::binary_cross_entropy_with_logits",
                {x, y, None(), None(), reduction});
      CheckRule("aten::binary_cross_entropy_with_logits",
                {x, y, y, y, reduction});
      CheckRule("aten::soft_margin_loss", {x, y, reduction});
    }
  }
}

TEST(PointwiseRulesTest, LossesOfTwoTypesAreOfTheInputs) {
  for (const auto& [x, y] : Pairs(at::kHalf, at::kBFloat16)) {
    CheckRule("aten::huber_loss", {x, y, 0});
    CheckRule("aten::huber_loss", {x, y, 1});
  }
  CheckRejected("aten::huber_loss", {Make({3}, at::kLong), Make({3}), 0});
}

TEST(PointwiseRulesTest, WholeExponents) {
  for (ScalarType exponent : {at::kByte, at::kInt, at::kLong}) {
    for (const auto& [x, y] : Pairs(at::kFloat, exponent)) {
      CheckRule("aten::ldexp.Tensor", {x, y});
    }
  }
}

TEST(PointwiseRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor x = Make({2, 3}), y = Make({4});
  CheckRejected("aten::where.self", {x, x, x});
  CheckRejected("aten::where.self", {Make({2, 3}, at::kBool), x, y});
  CheckRejected("aten::rsub.Tensor", {x, y});
  CheckRejected("aten::rsub.Tensor", {Make({2}, at::kBool), Make({2})});
  CheckRejected("aten::relu", {Make({2}, at::kBool)});
  CheckRejected("aten::__lshift__.Scalar", {Make({2}), 1});
  CheckRejected("aten::__rshift__.Tensor", {Make({2}), Make({2}, at::kLong)});
  CheckRejected("aten::hardswish", {Make({2}, at::kLong)});
  CheckRejected("aten::complex", {x, Make({2, 3}, at::kDouble)});
  CheckRejected("aten::dropout", {x, 1.5, true});
  CheckRejected("aten::huber_loss", {x, y});
  CheckRejected("aten::rrelu_with_noise", {x, Make({5})});
  CheckRejected("aten::huber_loss", {x, x, 1, -1.0});
  CheckRejected("aten::binary_cross_entropy_with_logits", {x, y});
  CheckRejected("aten::_prelu_kernel", {x, Make({1}, at::kDouble)});
}

}  // namespace
}  // namespace djinn
