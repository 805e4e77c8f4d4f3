// Rules for the CPU's fused kernels: scaled dot product attention, and the
// kernels that transformer modules use for inference.
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::ScalarType;

// Returns sizes (batch, heads, rows, width) that are stored as (batch, rows,
// heads, width).
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
  // The kernel would read out of bounds.
  TORCH_CHECK(key.size(2) == value.size(2), "key has ", key.size(2),
              " rows, value ", value.size(2));
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

// Checks that the weights project `embedding` columns.
void CheckProjections(const at::Tensor& query, int64_t embedding, int64_t heads,
                      const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& out_weight) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(),
              "-D tensor");
  TORCH_CHECK(query.size(2) == embedding, "passed-in embed_dim ", embedding,
              " didn't match last dim of query ", query.size(2));
  TORCH_CHECK(weight.dim() == 2, "expected 2-D `qkv_weight`, got ",
              weight.dim(), "-D tensor");
  TORCH_CHECK(weight.size(0) == 3 * embedding,
              "expected `qkv_weight` first dim to be 3x embed_dim");
  TORCH_CHECK(weight.size(1) == embedding,
              "expected `qkv_weight` second dim to be embed_Dim");
  TORCH_CHECK(bias.dim() == 1, "expected 1-D `qkv_bias`, got ", bias.dim(),
              "-D tensor");
  TORCH_CHECK(
      bias.size(0) == 3 * embedding,
      "expected `qkv_bias` first dim and first dim of query to be equal");
  TORCH_CHECK(heads > 0 && embedding % heads == 0,
              "`embed_dim` must divide evenly by `num_heads`");
  TORCH_CHECK(out_weight.dim() == 2 && out_weight.size(1) == embedding,
              "`proj_weight` does not fit embed_dim ", embedding, ": ",
              out_weight.sizes());
}

Results MultiHeadAttention(const CallArguments& args) {
  const at::Tensor& query = args.Tensor(0);
  const int64_t embedding = args.Integer(3), heads = args.Integer(4);
  CheckProjections(query, embedding, heads, args.Tensor(5), args.Tensor(6),
                   args.Tensor(7));
  TORCH_CHECK(query.sizes() == args.Tensor(1).sizes() &&
                  query.sizes() == args.Tensor(2).sizes(),
              "expected `query`/`key`/`value` shapes to match");
  const ScalarType dtype = query.scalar_type();
  const int64_t batch = query.size(0), rows = query.size(1);
  ResultMeta weights = {.defined = false, .dtype = dtype};
  if (args.Boolean(10) && query.numel() > 0) {
    weights = args.Boolean(11) ? Contiguous(dtype, {batch, rows, rows})
                               : Contiguous(dtype, {batch, heads, rows, rows});
  }
  return {Contiguous(dtype, query.sizes()), weights};
}

Results EncoderLayer(const CallArguments& args) {
  const at::Tensor& source = args.Tensor(0);
  CheckProjections(source, args.Integer(1), args.Integer(2), args.Tensor(3),
                   args.Tensor(4), args.Tensor(5));
  return {Contiguous(source.scalar_type(), source.sizes())};
}

}  // namespace

void AddAttentionRules(RuleTable* table) {
  table->Add({"aten::_scaled_dot_product_flash_attention_for_cpu"},
             FlashAttention);
  table->Add({"aten::_scaled_dot_product_flash_attention_for_cpu_backward"},
             FlashAttentionBackward);
  table->Add({"aten::_native_multi_head_attention"}, MultiHeadAttention);
  table->Add({"aten::_transformer_encoder_layer_fwd"}, EncoderLayer);
}

}  // namespace djinn
