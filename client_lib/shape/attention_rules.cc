// The CPU's fused kernel for scaled dot product attention.
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::ScalarType;

// (batch, heads, rows, width) stored as (batch, rows, heads, width).
ResultMeta HeadsInside(ScalarType dtype, const at::Tensor& query,
                       int64_t width) {
  return Transpose(
      Contiguous(dtype, {query.size(0), query.size(2), query.size(1), width}),
      1, 2);
}

Results FlashAttention(const CallArguments& args) {
  const at::Tensor& query = args.Tensor(0);
  const at::Tensor& key = args.Tensor(1);
  const at::Tensor& value = args.Tensor(2);
  CheckFloating("scaled_dot_product_attention", query);
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
              "scaled_dot_product_attention_flash_attention: Accept only 4 "
              "dims inputs shape of {B, H, T, K}");
  TORCH_CHECK(args.Real(3) == 0,
              "scaled_dot_product_attention_flash_attention: Currently do not "
              "support dropout > 0");
  TORCH_CHECK(query.size(3) == value.size(3) && key.size(3) == value.size(3),
              "scaled_dot_product_attention_flash_attention: Q/K/V should have "
              "the same head size");
  const ScalarType accumulate = query.scalar_type() == ScalarType::Double
                                    ? ScalarType::Double
                                    : ScalarType::Float;
  ResultMeta normalizer =
      Contiguous(accumulate, {query.size(0), query.size(2), query.size(1)});
  return {EmptyLike(query.scalar_type(), query), Transpose(normalizer, 1, 2)};
}

Results FlashAttentionBackward(const CallArguments& args) {
  auto gradient = [&](size_t index) {
    const at::Tensor& tensor = args.Tensor(index);
    return HeadsInside(tensor.scalar_type(), tensor, tensor.size(3));
  };
  return {gradient(1), gradient(2), gradient(3)};
}

}  // namespace

void AddAttentionRules(RuleTable* table) {
  table->Add({"aten::_scaled_dot_product_flash_attention_for_cpu"},
             FlashAttention);
  table->Add({"aten::_scaled_dot_product_flash_attention_for_cpu_backward"},
             FlashAttentionBackward);
}

}  // namespace djinn
