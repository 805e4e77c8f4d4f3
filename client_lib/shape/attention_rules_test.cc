#include <array>
#include <tuple>
#include <vector>

#include "client_lib/shape/rule_check.h"
#include "client_lib/shape/shape_rules.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr char kForward[] = "aten::_scaled_dot_product_flash_attention_for_cpu";
constexpr char kBackward[] =
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward";

at::ScalarType Accumulates(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Returns heads as models create them: (batch, rows, heads * width) viewed as
// (batch, heads, rows, width).
at::Tensor Heads(int64_t batch, int64_t heads, int64_t rows, int64_t width,
                 at::ScalarType dtype = at::kFloat) {
  return Make({batch, rows, heads * width}, dtype)
      .view({batch, rows, heads, width})
      .transpose(1, 2);
}

TEST(AttentionRulesTest, FusedKernel) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor k = Heads(2, 4, 7, 8, dtype);
    for (const at::Tensor& query : Layouts({2, 4, 5, 8}, dtype)) {
      if (query.stride(-1) != 1) continue;
      CheckRule(kForward, {query, k, k});
      CheckRule(kForward, {query, query, query, 0.0, true});
      CheckRule(kForward, {query, k, k, 0.0, false, Make({5, 7}, dtype)});
      const at::Tensor sums = Make({2, 5, 4}, Accumulates(dtype));
      CheckRule(kBackward,
                {query, query, k, k, query, sums.transpose(1, 2), 0.0, false});
      CheckRule(kBackward, {k, k, query, query, k,
                            Make({2, 7, 4}, Accumulates(dtype)).transpose(1, 2),
                            0.0, false});
    }
  }
}

TEST(AttentionRulesTest, DimensionsOfSizeOne) {
  for (const auto& [batch, heads, rows, width] :
       std::vector<std::array<int64_t, 4>>{
           {1, 4, 5, 8}, {2, 1, 5, 8}, {2, 4, 1, 8}, {1, 1, 1, 1}}) {
    const at::Tensor q = Heads(batch, heads, rows, width);
    for (const at::Tensor& query : {q, q.contiguous()}) {
      CheckRule(kForward, {query, query, query});
      CheckRule(kBackward,
                {query, query, query, query, query,
                 Make({batch, rows, heads}).transpose(1, 2), 0.0, true});
    }
  }
}

TEST(AttentionRulesTest, GroupedQueries) {
  const at::Tensor q = Heads(2, 8, 5, 4), k = Heads(2, 2, 5, 4);
  CheckRule(kForward, {q, k, k});
  CheckRule(kBackward,
            {q, q, k, k, q, Make({2, 5, 8}).transpose(1, 2), 0.0, false});
}

TEST(AttentionRulesTest, RejectWhatTheKernelRejects) {
  const at::Tensor q = Heads(2, 4, 5, 8);
  CheckRejected(kForward, {q, q, q, 0.5});
  CheckRejected(kForward, {q[0], q[0], q[0]});
  CheckRejected(kForward, {q, Heads(2, 4, 5, 6), q});
  CheckRejected(kForward, {q.to(at::kLong), q.to(at::kLong), q.to(at::kLong)});
}

// The CPU's kernel would read beyond the values.
TEST(AttentionRulesTest, AsManyValuesAsKeys) {
  const at::Tensor q = Heads(2, 4, 5, 8);
  EXPECT_THROW((*FindShapeRule(kForward))(
                   {q, q, Heads(2, 4, 3, 8), 0.0, false, None(), None()}),
               c10::Error);
}

TEST(AttentionRulesTest, ModulesOfTransformers) {
  constexpr int64_t kWidth = 8, kHeads = 2;
  const at::Tensor w = Make({3 * kWidth, kWidth}), b = Make({3 * kWidth});
  const at::Tensor out = Make({kWidth, kWidth}), d = Make({kWidth});
  const at::Tensor up = Make({20, kWidth}), down = Make({kWidth, 20});
  std::vector<at::Tensor> inputs = Layouts({2, 5, kWidth});
  inputs.push_back(Make({2, 0, kWidth}));
  inputs.push_back(Make({0, 5, kWidth}));
  inputs.push_back(Make({1, 1, kWidth}));
  for (const at::Tensor& x : inputs) {
    for (const bool weights : {false, true}) {
      for (const bool averaged : {false, true}) {
        CheckRule(
            "aten::_native_multi_head_attention",
            {x, x, x, kWidth, kHeads, w, b, out, d, None(), weights, averaged});
      }
    }
    for (const bool norm_first : {false, true}) {
      CheckRule("aten::_transformer_encoder_layer_fwd",
                {x, kWidth, kHeads, w, b, out, d, true, norm_first, 1e-5, d, d,
                 d, d, up, Make({20}), down, d});
    }
  }
  const at::Tensor x = inputs[0];
  for (const auto& [query, key, heads, weight, bias, projection] :
       std::vector<std::tuple<at::Tensor, at::Tensor, int64_t, at::Tensor,
                              at::Tensor, at::Tensor>>{
           {x[0], x[0], kHeads, w, b, out},
           {x, Make({2, 6, kWidth}), kHeads, w, b, out},
           {x, x, 3, w, b, out},
           {x, x, kHeads, out, b, out},
           {x, x, kHeads, Make({3 * kWidth, 4}), b, out},
           {x, x, kHeads, b, b, out},
           {x, x, kHeads, w, d, out},
           {x, x, kHeads, w, w, out},
           {x, x, kHeads, w, b, up.t()}}) {
    CheckRejected("aten::_native_multi_head_attention",
                  {query, key, key, kWidth, heads, weight, bias, projection, d,
                   None(), false});
  }
}

}  // namespace
}  // namespace djinn
