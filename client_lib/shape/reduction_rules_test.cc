#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(ReductionRulesTest, WholeTensor) {
  for (const at::Tensor& x : Zoo()) {
    for (const char* name : {"aten::median", "aten::nanmedian", "aten::prod",
                             "aten::count_nonzero", "aten::nansum"}) {
      CheckRule(name, {x});
    }
    if (x.numel() > 0) {
      CheckRule("aten::max", {x});
      CheckRule("aten::min", {x});
    }
  }
  for (at::ScalarType dtype : {at::kLong, at::kInt, at::kHalf, at::kDouble}) {
    for (const char* name :
         {"aten::median", "aten::prod", "aten::count_nonzero", "aten::nansum",
          "aten::max", "aten::min"}) {
      CheckRule(name, {Make({2, 3}, dtype)});
    }
    if (dtype != at::kHalf) CheckRule("aten::trace", {Make({2, 3}, dtype)});
    CheckRule("aten::dot", {Make({4}, dtype), Make({4}, dtype)});
    CheckRule("aten::vdot", {Make({4}, dtype), Make({4}, dtype)});
    CheckRule("aten::prod", {Make({3}, dtype), at::kDouble});
  }
  CheckRule("aten::max", {Make({3}, at::kBool)});
  CheckRule("aten::prod", {Make({3}, at::kBool)});
  CheckRule("aten::count_nonzero", {Make({3}, at::kBool)});
}

TEST(ReductionRulesTest, SpreadOverSomeDimensions) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    for (const char* name :
         {"aten::std.correction", "aten::var.correction",
          "aten::std_mean.correction", "aten::var_mean.correction"}) {
      for (bool keep : {false, true}) {
        CheckRule(name, {x, None(), None(), keep});
        CheckRule(name, {x, Ints({}), 1, keep});
        CheckRule(name, {x, Ints({1}), 0, keep});
        CheckRule(name, {x, Ints({-1, 0}), None(), keep});
      }
      CheckRule(name, {x.to(at::kDouble), Ints({2})});
      CheckRule(name, {x.to(at::kComplexFloat), Ints({2})});
    }
  }
  CheckRule("aten::var.correction", {Make({})});
  CheckRule("aten::var.correction", {Make({0, 2}), Ints({0})});
  CheckRule("aten::var_mean.correction", {Make({0, 2}), Ints({1})});
}

TEST(ReductionRulesTest, SumsOverSomeDimensions) {
  for (at::ScalarType dtype : {at::kFloat, at::kLong, at::kHalf}) {
    for (const at::Tensor& x : Layouts({2, 3, 4, 5}, dtype)) {
      for (bool keep : {false, true}) {
        CheckRule("aten::logsumexp", {x, Ints({1}), keep});
        CheckRule("aten::logsumexp", {x, Ints({1, -1}), keep});
        CheckRule("aten::nansum", {x, Ints({0, 2}), keep});
        CheckRule("aten::nansum", {x, Ints({0}), keep, at::kDouble});
      }
      CheckRule("aten::count_nonzero.dim_IntList", {x, Ints({1, 2})});
      CheckRule("aten::count_nonzero", {x, 1});
    }
  }
  CheckRule("aten::logsumexp", {Make({}), Ints({0})});
  CheckRule("aten::logsumexp", {Make({2, 0}), Ints({1})});
}

TEST(ReductionRulesTest, SelectionAlongOneDimension) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    for (int64_t dim : {0, 1, -1}) {
      for (bool keep : {false, true}) {
        CheckRule("aten::median.dim", {x, dim, keep});
        CheckRule("aten::nanmedian.dim", {x, dim, keep});
        CheckRule("aten::mode", {x, dim, keep});
        CheckRule("aten::kthvalue", {x, 1, dim, keep});
        CheckRule("aten::_aminmax.dim", {x, dim, keep});
      }
    }
  }
  for (const char* name : {"aten::median.dim", "aten::mode"}) {
    CheckRule(name, {Make({}), 0});
    CheckRule(name, {Make({0, 3}), 1});
    CheckRule(name, {Make({2, 3}, at::kLong), 1});
  }
  CheckRule("aten::kthvalue", {Make({}), 1, 0});
}

TEST(ReductionRulesTest, SegmentsAndScans) {
  for (const at::Tensor& x : Layouts({4, 3, 2})) {
    for (int64_t dim : {0, -1}) {
      CheckRule("aten::logcumsumexp", {x, dim});
      CheckRule("aten::_logcumsumexp", {x, dim});
    }
    const at::Tensor lengths = MakeIndex({2});
    lengths.fill_(2);
    CheckRule("aten::segment_reduce", {x, "sum", lengths});
    const at::Tensor offsets = MakeIndex({3});
    offsets[2].fill_(4);
    CheckRule("aten::segment_reduce", {x, "max", None(), None(), offsets});
    CheckRule(
        "aten::_segment_reduce_backward",
        {Make({2, 3, 2}), Make({2, 3, 2}), x.contiguous(), "sum", lengths});
  }
}

TEST(ReductionRulesTest, Histograms) {
  const c10::List<double> range({0.0, 1.0, 0.0, 1.0});
  for (const at::Tensor& x : Layouts({6, 2})) {
    CheckRule("aten::histc", {x, 5, 0, 1});
    CheckRule("aten::histogram.bin_ct", {x, 5, c10::List<double>({0.0, 1.0})});
    CheckRule("aten::_histogramdd_bin_edges", {x, Ints({3, 4}), range});
    CheckRule("aten::_histogramdd_from_bin_cts", {x, Ints({3, 4}), range});
    CheckRule("aten::_histogramdd_from_bin_tensors",
              {x, c10::List<at::Tensor>({Make({3}), Make({4})})});
  }
  for (const at::Tensor& edges : Layouts({5})) {
    CheckRule("aten::histogram.bins_tensor", {Make({3, 2}), edges});
  }
}

TEST(ReductionRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::histc", {Make({3}), 0});
  CheckRejected("aten::logcumsumexp", {Make({3}), 1});
  CheckRejected("aten::segment_reduce", {Make({3}), "sum"});
  CheckRejected("aten::max", {Make({0})});
  CheckRejected("aten::dot", {Make({3}), Make({4})});
  CheckRejected("aten::dot", {Make({3}), Make({3}, at::kDouble)});
  CheckRejected("aten::dot", {Make({3, 1}), Make({3})});
  CheckRejected("aten::trace", {Make({3})});
  CheckRejected("aten::std.correction", {Make({3}, at::kLong)});
  CheckRejected("aten::std.correction", {Make({3}), Ints({1})});
  CheckRejected("aten::std.correction", {Make({3}), Ints({0, 0})});
  CheckRejected("aten::std.correction", {Make({}), Ints({0, -1})});
  CheckRule("aten::std.correction", {Make({}), Ints({-1})});
  CheckRejected("aten::median.dim", {Make({0}), 0});
  CheckRejected("aten::median", {Make({3}, at::kBool)});
  CheckRule("aten::median", {Make({0}, at::kBool)});
  CheckRejected("aten::mode", {Make({0}), 0});
  CheckRejected("aten::kthvalue", {Make({3}), 4});
  CheckRejected("aten::logsumexp", {Make({3}), Ints({2})});
  CheckRejected("aten::nansum", {Make({3}, at::kComplexFloat)});
}

}  // namespace
}  // namespace djinn
