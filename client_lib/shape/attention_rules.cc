// Scaled dot-product attention: kept whole, and the CPU's fused kernel.
#include "c10/core/SymBool.h"
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

// Whether the CPU's kernel takes these operands; else they go through the plain
// formula. The kernel that would be asked is the worker's.
bool KernelTakes(const at::Tensor& query, const at::Tensor& key,
                 const at::Tensor& value, const at::Tensor& mask,
                 double dropout, bool grouped) {
  if (dropout > 0) return false;
  for (const at::Tensor& tensor : {query, key, value}) {
    if (tensor.dim() != 4 || !c10::isFloatingType(tensor.scalar_type()) ||
        tensor.scalar_type() != query.scalar_type() ||
        tensor.size(0) != query.size(0) || tensor.size(3) != query.size(3) ||
        tensor.size(2) == 0 || tensor.stride(-1) != 1) {
      return false;
    }
  }
  if (key.size(1) != value.size(1)) return false;
  if (query.size(1) != key.size(1) &&
      !(grouped && key.size(1) > 0 && query.size(1) % key.size(1) == 0)) {
    return false;
  }
  if (!mask.defined()) return true;
  if (mask.dim() != 2 && mask.dim() != 4) return false;
  auto fits = [](int64_t size, int64_t whole) {
    return size == 1 || size == whole;
  };
  if (!fits(mask.size(-2), query.size(2)) ||
      !fits(mask.size(-1), key.size(2))) {
    return false;
  }
  return mask.dim() == 2 || (fits(mask.size(0), query.size(0)) &&
                             fits(mask.size(1), query.size(1)));
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

// The sizes before the last two; with grouped queries, the heads are repeated
// until there are as many as the query has.
c10::DimVector BatchOf(const at::Tensor& tensor, const at::Tensor& query,
                       bool grouped) {
  c10::DimVector sizes(tensor.sizes().slice(0, tensor.dim() - 2));
  if (!grouped) return sizes;
  TORCH_CHECK(!sizes.empty() && query.dim() > 2 && sizes.back() > 0 &&
                  query.size(-3) % sizes.back() == 0,
              "Number of heads in key and value must divide the number of "
              "heads in query");
  sizes.back() = query.size(-3);
  return sizes;
}

// The plain formula ends in a matrix product, whose result is contiguous.
ResultMeta PlainAttention(const at::Tensor& query, const at::Tensor& key,
                          const at::Tensor& value, bool grouped) {
  c10::DimVector sizes = Broadcast(
      Broadcast(BatchOf(query, query, false), BatchOf(key, query, grouped)),
      BatchOf(value, query, grouped));
  sizes.push_back(query.size(-2));
  sizes.push_back(value.size(-1));
  return Contiguous(query.scalar_type(), sizes);
}

Results Attention(const CallArguments& args) {
  const at::Tensor& query = args.Tensor(0);
  const at::Tensor& key = args.Tensor(1);
  const at::Tensor& value = args.Tensor(2);
  const at::Tensor mask = args.Has(3) ? args.Tensor(3) : at::Tensor();
  const bool causal = args.Boolean(5), grouped = args.Boolean(7);
  TORCH_CHECK(query.scalar_type() == key.scalar_type() &&
                  query.scalar_type() == value.scalar_type(),
              "Expected query, key, and value to have the same dtype, but got "
              "query.dtype: ",
              c10::toString(query.scalar_type()),
              " key.dtype: ", c10::toString(key.scalar_type()),
              " and value.dtype: ", c10::toString(value.scalar_type()),
              " instead.");
  TORCH_CHECK(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
              "Expected query, key, and value to all be at least 2 "
              "dimensional");
  if (mask.defined()) {
    TORCH_CHECK(mask.scalar_type() == ScalarType::Bool ||
                    mask.scalar_type() == query.scalar_type() ||
                    mask.scalar_type() == ScalarType::Float,
                "Expected attn_mask dtype to be bool or float or to match "
                "query dtype, but got attn_mask.dtype: ",
                c10::toString(mask.scalar_type()));
  }
  if (KernelTakes(query, key, value, mask, args.Real(4), grouped)) {
    return {EmptyLike(query.scalar_type(), query)};
  }
  TORCH_CHECK(!mask.defined() || !causal,
              "Explicit attn_mask should not be set when is_causal=True");
  TORCH_CHECK(query.size(-1) == key.size(-1),
              "attention: query and key differ in width");
  TORCH_CHECK(key.size(-2) == value.size(-2),
              "attention: key and value differ in length");
  return {PlainAttention(query, key, value, grouped)};
}

}  // namespace

void AddAttentionRules(RuleTable* table) {
  table->Add({"aten::scaled_dot_product_attention"}, Attention);
  table->Add({"aten::_scaled_dot_product_flash_attention_for_cpu"},
             FlashAttention);
  table->Add({"aten::_scaled_dot_product_flash_attention_for_cpu_backward"},
             FlashAttentionBackward);
}

}  // namespace djinn
