#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(NormalizationRulesTest, LayerNorm) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    CheckRule("aten::native_layer_norm",
              {x, Ints({5}), Make({5}), Make({5}), 1e-5});
    CheckRule("aten::native_layer_norm",
              {x, Ints({4, 5}), None(), None(), 1e-5});
    CheckRule("aten::layer_norm", {x, Ints({5}), Make({5}), Make({5})});
    CheckRule("aten::layer_norm", {x, Ints({3, 4, 5})});
  }
  const at::Tensor half = Make({2, 5}, at::kBFloat16);
  CheckRule("aten::native_layer_norm",
            {half, Ints({5}), Make({5}), Make({5}), 1e-5});
  CheckRule("aten::native_layer_norm", {half, Ints({5}), None(), None(), 1e-5});
  CheckRule("aten::layer_norm", {half, Ints({5}), Make({5}), Make({5})});
  CheckRule("aten::layer_norm", {Make({0, 5}), Ints({5})});
  CheckRule("aten::layer_norm", {Make({5}, at::kDouble), Ints({5})});
}

TEST(NormalizationRulesTest, LayerNormBackward) {
  for (const at::Tensor& x : Layouts({2, 3, 5})) {
    for (std::vector<bool> mask : std::vector<std::vector<bool>>{
             {true, true, true}, {true, false, false}, {false, true, true}}) {
      CheckRule("aten::native_layer_norm_backward",
                {x.contiguous(), x, Ints({5}), Make({2, 3, 1}), Make({2, 3, 1}),
                 Make({5}), Make({5}), Mask(mask)});
    }
    CheckRule("aten::native_layer_norm_backward",
              {x.contiguous(), x, Ints({5}), Make({2, 3, 1}), Make({2, 3, 1}),
               None(), None(), Mask({true, false, false})});
  }
}

TEST(NormalizationRulesTest, WeightNorm) {
  for (const at::Tensor& v : Layouts({4, 3, 2})) {
    if (!v.is_contiguous()) continue;
    CheckRule("aten::_weight_norm_interface", {v, Make({4, 1, 1}), 0});
    CheckRule("aten::_weight_norm_interface", {v, Make({1, 1, 2}), 2});
    CheckRule("aten::_weight_norm_interface_backward",
              {v, v, Make({4, 1, 1}), Make({4, 1, 1}), 0});
  }
}

TEST(NormalizationRulesTest, GroupNorm) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {2, 4}, {2, 4, 5}, {2, 4, 3, 5}, {2, 4, 2, 3, 5}, {0, 4, 3, 3}}) {
    for (const at::Tensor& x : Layouts(sizes)) {
      CheckRule("aten::group_norm", {x, 2, Make({4}), Make({4})});
      CheckRule("aten::group_norm", {x, 4});
      if (!x.is_contiguous(x.suggest_memory_format())) continue;
      const int64_t area = x.numel() == 0 ? 9 : x.numel() / 8;
      CheckRule("aten::native_group_norm",
                {x, Make({4}), Make({4}), x.size(0), 4, area, 2, 1e-5});
      CheckRule("aten::native_group_norm_backward",
                {x, x, Make({x.size(0), 2}), Make({x.size(0), 2}), Make({4}),
                 x.size(0), 4, area, 2, Mask({true, true, true})});
      CheckRule("aten::native_group_norm_backward",
                {x.contiguous(), x, Make({x.size(0), 2}), Make({x.size(0), 2}),
                 None(), x.size(0), 4, area, 2, Mask({true, false, false})});
    }
  }
  const at::Tensor half = Make({2, 4, 5}, at::kBFloat16);
  CheckRule("aten::native_group_norm",
            {half, Make({4}), Make({4}), 2, 4, 5, 2, 1e-5});
}

TEST(NormalizationRulesTest, BatchNormOfDimensionsOfOneElement) {
  for (const std::vector<int64_t>& strides : std::vector<std::vector<int64_t>>{
           {1, 1, 60, 2}, {6, 1, 1, 2}, {8, 1, 5, 2}, {4, 2, 2, 1}}) {
    const at::Tensor x =
        Make({200}).as_strided({strides[0] == 1 ? 1 : 2, 2, 1, 2}, strides);
    CheckRule("aten::batch_norm",
              {x, None(), None(), None(), None(), true, 0.1, 1e-5, false});
  }
}

TEST(NormalizationRulesTest, BatchNorm) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {2, 4}, {2, 4, 5}, {2, 4, 3, 5}, {2, 4, 2, 3, 5}}) {
    for (const at::Tensor& x : Layouts(sizes)) {
      for (bool training : {false, true}) {
        CheckRule("aten::native_batch_norm",
                  {x, Make({4}), Make({4}), Make({4}), Make({4}), training, 0.1,
                   1e-5});
        CheckRule(
            "aten::_native_batch_norm_legit",
            {x, None(), None(), Make({4}), Make({4}), training, 0.1, 1e-5});
        CheckRule("aten::batch_norm", {x, Make({4}), Make({4}), Make({4}),
                                       Make({4}), training, 0.1, 1e-5, false});
        CheckRule("aten::native_batch_norm_backward",
                  {x, x, Make({4}), Make({4}), Make({4}), Make({4}), Make({4}),
                   training, 1e-5, Mask({true, true, true})});
        CheckRule("aten::native_batch_norm_backward",
                  {x.contiguous(), x, None(), Make({4}), Make({4}), Make({4}),
                   Make({4}), training, 1e-5, Mask({true, false, false})});
        CheckRule("aten::_native_batch_norm_legit_functional",
                  {x, Make({4}), Make({4}), Make({4}), Make({4}), training, 0.1,
                   1e-5});
      }
      CheckRule("aten::native_batch_norm",
                {x, Make({4}), None(), None(), None(), true, 0.1, 1e-5});
      CheckRule("aten::_native_batch_norm_legit.no_stats",
                {x, Make({4}), Make({4}), true, 0.1, 1e-5});
      CheckRule("aten::_native_batch_norm_legit_no_training",
                {x, Make({4}), Make({4}), Make({4}), Make({4}), 0.1, 1e-5});
      CheckRule("aten::batch_norm",
                {x, None(), None(), None(), None(), true, 0.1, 1e-5, false});
      CheckRule("aten::batch_norm_update_stats",
                {x, Make({4}), Make({4}), 0.1});
      CheckRule("aten::_batch_norm_with_update",
                {x, Make({4}), Make({4}), Make({4}), Make({4}), 0.1, 1e-5});
      CheckRule("aten::_batch_norm_with_update_functional",
                {x, Make({4}), Make({4}), Make({4}), Make({4}), 0.1, 1e-5});
      CheckRule("aten::_batch_norm_no_update",
                {x, Make({4}), Make({4}), Make({4}), Make({4}), 0.1, 1e-5});
      CheckRule("aten::batch_norm_backward",
                {x, x, Make({4}), Make({4}), Make({4}), Make({4}), Make({4}),
                 true, 1e-5, Mask({true, true, true}), Make({0}, at::kByte)});
    }
  }
  const at::Tensor half = Make({2, 4, 5}, at::kBFloat16);
  for (bool training : {false, true}) {
    CheckRule("aten::native_batch_norm", {half, Make({4}), Make({4}), Make({4}),
                                          Make({4}), training, 0.1, 1e-5});
    CheckRule("aten::native_batch_norm_backward",
              {half, half, Make({4}), Make({4}), Make({4}), Make({4}),
               Make({4}), training, 1e-5, Mask({true, true, true})});
  }
  CheckRule("aten::batch_norm", {Make({0}), None(), None(), Make({0}),
                                 Make({0}), true, 0.1, 1e-5, false});
  for (const at::Tensor& x : Layouts({0, 4, 3, 3})) {
    CheckRule("aten::batch_norm", {x, Make({4}), Make({4}), Make({4}),
                                   Make({4}), true, 0.1, 1e-5, false});
  }
}

TEST(NormalizationRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor x = Make({2, 4, 5});
  CheckRejected("aten::layer_norm", {x, Ints({4})});
  CheckRejected("aten::layer_norm", {x, Ints({})});
  CheckRejected("aten::layer_norm", {x, Ints({5}), Make({4})});
  CheckRejected("aten::layer_norm",
                {x, Ints({5}), Make({5}, at::kDouble), Make({5})});
  CheckRejected("aten::group_norm", {x, 3});
  CheckRejected("aten::group_norm", {x, 2, Make({2})});
  CheckRejected("aten::batch_norm",
                {x, Make({3}), None(), None(), None(), true, 0.1, 1e-5, false});
  CheckRejected("aten::batch_norm",
                {x, None(), None(), None(), None(), false, 0.1, 1e-5, false});
}

}  // namespace
}  // namespace djinn
