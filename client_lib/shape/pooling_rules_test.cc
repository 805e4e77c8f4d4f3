#include <string>

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

TEST(PoolingRulesTest, MaxPool3d) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 3, 4, 6, 5}, {3, 4, 6, 5}}) {
    for (const at::Tensor& x : Layouts(sizes)) {
      if (x.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
        CheckRejected("aten::max_pool3d_with_indices", {x, Ints({2, 2, 2})});
        continue;
      }
      CheckRule("aten::max_pool3d_with_indices", {x, Ints({2, 2, 2})});
      CheckRule("aten::max_pool3d_with_indices",
                {x, Ints({2}), Ints({1}), Ints({1}), Ints({1}), true});
      CheckRule("aten::max_pool3d_with_indices",
                {x, Ints({2, 3, 2}), Ints({2, 2, 3}), Ints({0, 1, 1}),
                 Ints({1, 1, 2}), true});
      at::Tensor out = Make({2, 3, 2, 3, 2}).slice(0, 0, x.dim() == 5 ? 2 : 1);
      if (x.dim() == 4) out = out.select(0, 0);
      CheckRule("aten::max_pool3d_with_indices_backward",
                {out, x, Ints({2, 2, 2}), Ints({2, 2, 2}), Ints({0, 0, 0}),
                 Ints({1, 1, 1}), false, MakeIndex(out.sizes())});
    }
  }
}

TEST(PoolingRulesTest, MaxUnpool) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    CheckRule("aten::max_unpool2d",
              {x, MakeIndex({2, 3, 4, 5}), Ints({8, 10})});
    CheckRule("aten::max_unpool2d",
              {x.select(0, 0), MakeIndex({3, 4, 5}), Ints({8, 10})});
    CheckRule("aten::max_unpool3d",
              {x, MakeIndex({2, 3, 4, 5}), Ints({6, 8, 10}), Ints({2, 2, 2}),
               Ints({0, 0, 0})});
  }
  for (const at::Tensor& x : Layouts({2, 2, 3, 4, 5})) {
    CheckRule("aten::max_unpool3d",
              {x, MakeIndex({2, 2, 3, 4, 5}), Ints({6, 8, 10}), Ints({2, 2, 2}),
               Ints({0, 0, 0})});
  }
}

TEST(PoolingRulesTest, GridSampler) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    for (const at::Tensor& grid : Layouts({2, 6, 7, 2})) {
      CheckRule("aten::grid_sampler_2d", {x, grid, 0, 0, false});
      CheckRule("aten::grid_sampler_2d_backward",
                {Make({2, 3, 6, 7}), x, grid, 0, 0, false, Mask({true, true})});
    }
    CheckRule("aten::grid_sampler_2d_backward",
              {Make({2, 3, 6, 7}), x, Make({2, 6, 7, 2}), 0, 0, false,
               Mask({false, true})});
  }
  for (const at::Tensor& x : Layouts({2, 3, 4, 5, 2})) {
    CheckRule("aten::grid_sampler_3d", {x, Make({2, 6, 7, 2, 3}), 0, 0, false});
    CheckRule("aten::grid_sampler_3d_backward",
              {Make({2, 3, 6, 7, 2}), x, Make({2, 6, 7, 2, 3}), 0, 0, false,
               Mask({true, true})});
  }
}

TEST(PoolingRulesTest, Padding) {
  for (const at::Tensor& x : Layouts({2, 3, 4, 5})) {
    CheckRule("aten::reflection_pad2d", {x, Ints({1, 2, 3, 0})});
    CheckRule("aten::reflection_pad2d", {x.select(0, 0), Ints({1, 2, 3, 0})});
    CheckRule("aten::replication_pad2d", {x, Ints({1, 2, 3, 0})});
    CheckRule("aten::replication_pad2d", {x.select(0, 0), Ints({1, 2, 3, 0})});
    CheckRule("aten::reflection_pad2d_backward",
              {Make({2, 3, 7, 8}), x, Ints({1, 2, 3, 0})});
    CheckRule("aten::replication_pad2d_backward",
              {Make({2, 3, 7, 8}), x, Ints({1, 2, 3, 0})});
  }
  for (const at::Tensor& x : Layouts({2, 3, 2, 4, 5})) {
    for (const char* op :
         {"aten::reflection_pad3d", "aten::replication_pad3d"}) {
      CheckRule(op, {x, Ints({1, 2, 3, 0, 0, 0})});
      CheckRule(op, {x.select(0, 0), Ints({1, 2, 3, 0, 0, 0})});
    }
    CheckRule("aten::replication_pad3d_backward",
              {Make({2, 3, 2, 7, 8}), x, Ints({1, 2, 3, 0, 0, 0})});
  }
}

TEST(PoolingRulesTest, Columns) {
  for (const at::Tensor& x : Layouts({2, 3, 6, 5})) {
    CheckRule("aten::im2col",
              {x, Ints({2, 3}), Ints({1, 1}), Ints({1, 0}), Ints({2, 1})});
    CheckRule("aten::im2col", {x.select(0, 0), Ints({2, 3}), Ints({1, 2}),
                               Ints({0, 1}), Ints({1, 1})});
  }
  for (const at::Tensor& x : Layouts({2, 18, 12})) {
    CheckRule("aten::col2im", {x, Ints({6, 5}), Ints({2, 3}), Ints({1, 1}),
                               Ints({1, 0}), Ints({2, 1})});
    CheckRule("aten::col2im", {x.select(0, 0), Ints({6, 5}), Ints({2, 3}),
                               Ints({1, 1}), Ints({1, 0}), Ints({2, 1})});
  }
}

TEST(PoolingRulesTest, ChannelShuffle) {
  for (const at::Tensor& x : Layouts({2, 4, 6, 5})) {
    CheckRule("aten::channel_shuffle", {x, 2});
    CheckRule("aten::native_channel_shuffle", {x, 2});
  }
}

TEST(PoolingRulesTest, PixelShuffle) {
  for (const at::Tensor& x : Layouts({2, 8, 6, 4})) {
    CheckRule("aten::pixel_shuffle", {x, 2});
    CheckRule("aten::pixel_unshuffle", {x, 2});
  }
  for (const at::Tensor& x : Layouts({8, 6, 4})) {
    CheckRule("aten::pixel_shuffle", {x, 2});
    CheckRule("aten::pixel_unshuffle", {x, 2});
  }
}

TEST(PoolingRulesTest, RejectWhatTheKernelsReject) {
  CheckRejected("aten::max_pool3d_with_indices",
                {Make({2, 3, 4, 6, 5}), Ints({9, 2, 2})});
  CheckRejected("aten::max_pool3d_with_indices",
                {Make({2, 3, 4, 6, 5}), Ints({2, 2, 2}), Ints({1}), Ints({2})});
  CheckRejected("aten::reflection_pad2d",
                {Make({3, 4, 5}), Ints({5, 0, 0, 0})});
  CheckRejected("aten::im2col", {Make({3, 4, 5}), Ints({9, 9}), Ints({1, 1}),
                                 Ints({0, 0}), Ints({1, 1})});
  CheckRejected("aten::col2im", {Make({2, 18, 11}), Ints({6, 5}), Ints({2, 3}),
                                 Ints({1, 1}), Ints({1, 0}), Ints({2, 1})});
  CheckRejected("aten::grid_sampler_2d",
                {Make({2, 3, 4, 5}), Make({1, 6, 7, 2}), 0, 0, false});
  CheckRejected("aten::channel_shuffle", {Make({2, 4, 3}), 3});
  CheckRejected("aten::_adaptive_avg_pool2d", {Make({3, 4}), Ints({1, 1})});
  CheckRejected("aten::_adaptive_avg_pool2d",
                {Make({2, 3, 0, 4}), Ints({1, 1})});
  CheckRejected("aten::_adaptive_avg_pool3d",
                {Make({3, 4, 5}), Ints({1, 1, 1})});
  CheckRejected("aten::_adaptive_avg_pool2d_backward",
                {Make({1, 0, 2, 2}), Make({1, 0, 3, 3})});
  CheckRejected("aten::_adaptive_avg_pool2d_backward",
                {Make({2, 2, 2}), Make({1, 2, 3, 3})});
  CheckRejected("aten::_adaptive_avg_pool3d_backward",
                {Make({1, 2, 0, 2, 2}), Make({1, 2, 3, 3, 3})});
}

TEST(PoolingRulesTest, RefusesGradientsOfOtherImagesAndChannels) {
  const std::string backward = "aten::_adaptive_avg_pool2d_backward";
  CheckRefused(backward, {Make({1, 1, 2, 2}), Make({1, 2, 3, 3})});
  CheckRefused(backward, {Make({1, 2, 2, 2}), Make({2, 2, 3, 3})});
  CheckRefused("aten::_adaptive_avg_pool3d_backward",
               {Make({1, 2, 2, 2}), Make({2, 3, 3, 3})});
}

}  // namespace
}  // namespace djinn
