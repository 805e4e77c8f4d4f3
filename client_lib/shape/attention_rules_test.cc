#include <array>
#include <vector>

#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr char kForward[] = "aten::_scaled_dot_product_flash_attention_for_cpu";
constexpr char kBackward[] =
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward";

at::ScalarType Accumulates(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Heads as models make them: (batch, rows, heads * width) seen as heads.
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

}  // namespace
}  // namespace djinn
