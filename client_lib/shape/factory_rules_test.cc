#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(FactoryRulesTest, ArangeInfersItsType) {
  CheckRule("aten::arange", {5});
  CheckRule("aten::arange", {5.0});
  CheckRule("aten::arange", {5.5});
  CheckRule("aten::arange", {0});
  CheckRule("aten::arange", {5, at::kFloat});
  CheckRule("aten::arange", {5.5, at::kLong});
  CheckRule("aten::arange.start", {2, 7});
  CheckRule("aten::arange.start", {2, 7.5});
  CheckRule("aten::arange.start", {2.0, 7, at::kHalf});
  CheckRule("aten::arange.start_step", {0, 10, 3});
  CheckRule("aten::arange.start_step", {10, 0, -3});
  CheckRule("aten::arange.start_step", {0, 1, 0.1});
  CheckRule("aten::arange.start_step", {0, 9, 3, at::kInt});
  CheckRule("aten::arange.start_step", {1, 1, 1});
}

TEST(FactoryRulesTest, RangeIncludesItsEnd) {
  CheckRule("aten::range", {0, 5});
  CheckRule("aten::range.step", {0, 5, 2});
  CheckRule("aten::range.step", {0, 1, 0.25});
  CheckRule("aten::range.step", {5, 0, -2, at::kLong});
}

TEST(FactoryRulesTest, Spaced) {
  const c10::complex<double> i(0, 1);
  for (int64_t steps : {0, 1, 5}) {
    CheckRule("aten::linspace", {0, 4, steps});
    CheckRule("aten::linspace", {0.5, i, steps});
    CheckRule("aten::linspace", {0, 4, steps, at::kLong});
    CheckRule("aten::logspace", {0, 4, steps});
    CheckRule("aten::logspace", {i, 4, steps, 2.0, at::kComplexDouble});
  }
  for (const char* name :
       {"aten::linspace.Tensor_Tensor", "aten::logspace.Tensor_Tensor"}) {
    CheckRule(name, {Make({}), Make({}), 5});
    CheckRule(name, {Make({}, at::kLong), Make({}), 0});
  }
  CheckRule("aten::linspace.Tensor_Scalar", {Make({}), 2, 5});
  CheckRule("aten::linspace.Scalar_Tensor", {2, Make({}), 5, at::kDouble});
  CheckRule("aten::logspace.Tensor_Scalar", {Make({}), 2, 5});
  CheckRule("aten::logspace.Scalar_Tensor", {2, Make({}), 5, 10.0, at::kHalf});
}

TEST(FactoryRulesTest, Eye) {
  CheckRule("aten::eye", {3});
  CheckRule("aten::eye", {0, at::kLong});
  CheckRule("aten::eye.m", {3, 4});
  CheckRule("aten::eye.m", {3, 4, at::kBool});
  CheckRule("aten::tril_indices", {3, 4});
  CheckRule("aten::tril_indices", {3, 4, -1, at::kInt});
  CheckRule("aten::triu_indices", {3, 4, 1});
  CheckRule("aten::triu_indices", {3, 3, 5});
}

TEST(FactoryRulesTest, Windows) {
  for (const char* name :
       {"aten::bartlett_window", "aten::blackman_window", "aten::hann_window",
        "aten::hamming_window", "aten::kaiser_window"}) {
    for (int64_t length : {0, 1, 7}) {
      CheckRule(name, {length});
      CheckRule(std::string(name) + ".periodic", {length, false, at::kDouble});
    }
    CheckRejected(name, {-1});
    CheckRejected(name, {3, at::kLong});
  }
  CheckRule("aten::hamming_window.periodic_alpha", {7, true, 0.5, at::kDouble});
  CheckRule("aten::hamming_window.periodic_alpha_beta",
            {7, true, 0.5, 0.5, at::kDouble});
  CheckRule("aten::kaiser_window.beta", {7, true, 10.0, at::kDouble});
}

TEST(FactoryRulesTest, Draws) {
  for (const at::Tensor& x : Zoo()) {
    for (const char* name :
         {"aten::bernoulli", "aten::poisson", "aten::_standard_gamma"}) {
      CheckRule(name, {x});
    }
    CheckRule("aten::bernoulli.p", {x, 0.5});
    CheckRule("aten::normal.Tensor_float", {x, 2.0});
    CheckRule("aten::normal.float_Tensor", {2.0, x});
    if (x.dim() > 0 && x.numel() > 0) CheckRule("aten::_sample_dirichlet", {x});
  }
  for (const auto& [x, y] : Pairs()) {
    CheckRule("aten::normal.Tensor_Tensor", {x, y});
  }
  for (const at::Tensor& x : Layouts({2, 3})) {
    CheckRule("aten::binomial", {x, Make({2, 3})});
  }
  CheckRule("aten::multinomial", {Make({5}), 3});
  CheckRule("aten::multinomial", {Make({2, 5}), 1});
  CheckRule("aten::multinomial", {Make({2, 5}), 9, true});
}

TEST(FactoryRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::arange.start_step", {0, 5, 0});
  CheckRejected("aten::arange.start", {5, 0});
  CheckRejected("aten::eye", {-1});
  CheckRejected("aten::multinomial", {Make({5}), 6});
  CheckRejected("aten::multinomial", {Make({5}), 0});
  CheckRejected("aten::multinomial", {Make({5}, at::kLong), 1});
  CheckRejected("aten::linspace", {0, 4, -1});
  CheckRejected("aten::linspace",
                {0, c10::complex<double>(0, 1), 5, at::kFloat});
  CheckRejected("aten::linspace.Tensor_Tensor", {Make({}), Make({}), -1});
  CheckRejected("aten::normal.Tensor_Tensor", {Make({3}), Make({4})});
}

}  // namespace
}  // namespace djinn
