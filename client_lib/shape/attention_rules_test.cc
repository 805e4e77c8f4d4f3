#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Heads as models make them: (batch, rows, heads * width) seen as heads.
at::Tensor Heads(int64_t batch, int64_t heads, int64_t rows, int64_t width,
                 at::ScalarType dtype = at::kFloat) {
  return Make({batch, rows, heads * width}, dtype)
      .view({batch, rows, heads, width})
      .transpose(1, 2);
}

TEST(AttentionRulesTest, FusedKernelPutsHeadsInside) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor q = Heads(2, 4, 5, 8, dtype), k = Heads(2, 4, 7, 8, dtype);
    const at::Tensor plain = Make({2, 4, 5, 8}, dtype);
    for (const at::Tensor& query : {q, plain}) {
      CheckRule("aten::scaled_dot_product_attention", {query, k, k});
      CheckRule("aten::scaled_dot_product_attention",
                {query, query, query, None(), 0.0, true});
      CheckRule("aten::_scaled_dot_product_flash_attention_for_cpu",
                {query, k, k});
      CheckRule("aten::scaled_dot_product_attention",
                {query, k, k, Make({5, 7}, at::kBool)});
      CheckRule("aten::scaled_dot_product_attention",
                {query, k, k, Make({2, 1, 5, 7}, dtype)});
      CheckRule("aten::scaled_dot_product_attention",
                {query, k, k, Make({1, 1, 1, 7}, dtype)});
      CheckRule("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                {query, query, k, k, query,
                 Make({2, 4, 5}, dtype == at::kDouble ? dtype : at::kFloat),
                 0.0, false});
    }
  }
}

TEST(AttentionRulesTest, GroupedQueries) {
  const at::Tensor q = Heads(2, 8, 5, 4), k = Heads(2, 2, 5, 4);
  CheckRule("aten::scaled_dot_product_attention",
            {q, k, k, None(), 0.0, false, None(), true});
  CheckRule("aten::scaled_dot_product_attention",
            {q, k, k, None(), 0.0, true, None(), true});
  const at::Tensor columns = Make({2, 8, 4, 5}).transpose(-1, -2);
  CheckRule("aten::scaled_dot_product_attention",
            {columns, k, k, None(), 0.0, true, None(), true});
  CheckRejected("aten::scaled_dot_product_attention",
                {columns, Heads(2, 3, 5, 4), Heads(2, 3, 5, 4), None(), 0.0,
                 true, None(), true});
}

TEST(AttentionRulesTest, PlainFormula) {
  const at::Tensor x = Make({4, 5, 8});
  CheckRule("aten::scaled_dot_product_attention", {x, x, x});
  CheckRule("aten::scaled_dot_product_attention", {x[0], x[0], x[0]});
  const at::Tensor q = Heads(2, 4, 5, 8), v = Heads(2, 4, 5, 6);
  CheckRule("aten::scaled_dot_product_attention", {q, q, v});
  CheckRule("aten::scaled_dot_product_attention", {q, q, q, None(), 0.5});
  const at::Tensor strided = Make({2, 4, 8, 5}).transpose(2, 3);
  CheckRule("aten::scaled_dot_product_attention", {strided, strided, strided});
  CheckRule("aten::scaled_dot_product_attention",
            {q, q, v, Make({5, 5}, at::kBool)});
  CheckRule("aten::scaled_dot_product_attention", {q, q, q, None(), 0.5, true});
  for (const at::Tensor& each : Layouts({2, 4, 5, 8})) {
    CheckRule("aten::scaled_dot_product_attention", {each, q, q});
    CheckRule("aten::scaled_dot_product_attention", {q, each, q});
    CheckRule("aten::scaled_dot_product_attention", {q, q, each});
    CheckRule("aten::scaled_dot_product_attention",
              {each, each, each, None(), 0.5});
  }
}

TEST(AttentionRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor q = Heads(2, 4, 5, 8);
  CheckRejected("aten::scaled_dot_product_attention",
                {q, q, q.to(at::kDouble)});
  CheckRejected("aten::scaled_dot_product_attention",
                {q, Heads(2, 4, 5, 6), q});
  CheckRejected("aten::scaled_dot_product_attention",
                {q, q, q, Make({5, 5}), 0.5, true});
  CheckRejected("aten::scaled_dot_product_attention",
                {q, q, q, Make({5, 5}, at::kLong)});
  CheckRejected("aten::scaled_dot_product_attention", {q, Make({8}), q});
  CheckRejected("aten::_scaled_dot_product_flash_attention_for_cpu",
                {q, q, q, 0.5});
}

}  // namespace
}  // namespace djinn
