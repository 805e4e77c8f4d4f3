#include "scheduler/semantics/patterns/operators.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace djinn::semantics {
namespace {

using Classes = absl::flat_hash_map<std::string, OpClass>;

struct Group {
  OpClass op_class;
  const char* names;
};

constexpr Group kGroups[] = {
    {OpClass::kMatmul,
     "linear addmm mm bmm baddbmm matmul addbmm mv addmv dot einsum bilinear "
     "_grouped_mm"},
    {OpClass::kConvolution,
     "convolution _convolution conv1d conv2d conv3d conv_transpose1d "
     "conv_transpose2d conv_transpose3d convolution_overrideable "
     "mkldnn_convolution slow_conv2d_forward thnn_conv2d"},
    {OpClass::kAttention,
     "scaled_dot_product_attention _scaled_dot_product_flash_attention "
     "_scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_efficient_attention "
     "_scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math "
     "_flash_attention_forward _efficient_attention_forward"},
    {OpClass::kSoftmax,
     "softmax _softmax _safe_softmax log_softmax _log_softmax"},
    {OpClass::kNormalization,
     "layer_norm native_layer_norm batch_norm native_batch_norm group_norm "
     "native_group_norm instance_norm rms_norm _fused_rms_norm "
     "_batch_norm_impl_index cudnn_batch_norm _native_batch_norm_legit "
     "_batch_norm_with_update local_response_norm"},
    {OpClass::kEmbedding,
     "embedding embedding_bag _embedding_bag "
     "_embedding_bag_forward_only"},
    {OpClass::kRecurrent,
     "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
     "rnn_relu_cell mkldnn_rnn_layer _thnn_fused_lstm_cell"},
    {OpClass::kActivation,
     "relu gelu silu sigmoid tanh elu selu celu leaky_relu hardswish "
     "hardsigmoid hardtanh relu6 softplus mish prelu glu threshold erf"},
    {OpClass::kPointwise,
     "add sub rsub mul div neg pow sqrt rsqrt exp log log2 log1p abs where "
     "masked_fill clamp clamp_min clamp_max cos sin eq ne lt le gt ge "
     "bitwise_and bitwise_or bitwise_not bitwise_xor logical_and logical_or "
     "logical_not logical_xor minimum maximum reciprocal square sign floor "
     "ceil round trunc remainder fmod addcmul addcdiv lerp floor_divide isnan "
     "isinf isfinite true_divide multiply subtract divide tril triu"},
    {OpClass::kReduction,
     "sum mean max min amax amin argmax argmin any all prod var std norm "
     "linalg_vector_norm cumsum cumprod logsumexp topk sort argsort "
     "_is_all_true _is_any_true count_nonzero var_mean std_mean median"},
    {OpClass::kPooling,
     "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices avg_pool1d "
     "avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
     "_adaptive_avg_pool2d adaptive_max_pool2d "
     "max_pool3d_with_indices mkldnn_max_pool2d"},
    {OpClass::kResampling,
     "upsample_nearest1d upsample_nearest2d upsample_nearest3d "
     "upsample_bilinear2d upsample_bicubic2d upsample_linear1d "
     "upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
     "_upsample_nearest_exact2d pixel_shuffle grid_sampler grid_sampler_2d"},
    {OpClass::kLayout,
     "copy cat concat clone contiguous stack repeat repeat_interleave "
     "constant_pad_nd pad roll flip _to_copy to reshape tile im2col "
     "pixel_unshuffle channel_shuffle"},
    {OpClass::kIndexing,
     "index index_select index_copy index_add index_put _index_put_impl "
     "index_fill gather scatter scatter_add scatter_reduce masked_scatter "
     "masked_select take nonzero slice_scatter select_scatter put isin "
     "_unique2 bucketize searchsorted"},
    {OpClass::kRandom,
     "bernoulli dropout native_dropout normal uniform randn rand randint "
     "multinomial randperm exponential random"},
    {OpClass::kFactory,
     "zeros ones full empty arange zeros_like ones_like full_like new_zeros "
     "new_ones new_full scalar_tensor empty_like linspace eye tril_indices "
     "triu_indices "
     "fill zero"},
    {OpClass::kLoss,
     "nll_loss_forward nll_loss2d_forward nll_loss nll_loss_nd "
     "cross_entropy_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div "
     "binary_cross_entropy binary_cross_entropy_with_logits ctc_loss "
     "_ctc_loss soft_margin_loss margin_ranking_loss hinge_embedding_loss "
     "triplet_margin_loss cosine_embedding_loss multi_margin_loss"},
    {OpClass::kOptimizer, "_fused_adam _fused_adamw _fused_sgd _fused_adagrad"},
    {OpClass::kBackward,
     "_softmax_backward_data _log_softmax_backward_data "
     "embedding_dense_backward"},
};

const Classes& Table() {
  static const auto* const table = [] {
    auto* const classes = new Classes;
    for (const Group& group : kGroups) {
      for (const absl::string_view name :
           absl::StrSplit(group.names, ' ', absl::SkipEmpty())) {
        classes->emplace(name, group.op_class);
      }
    }
    return classes;
  }();
  return *table;
}

}  // namespace

absl::string_view OpClassName(OpClass op_class) {
  static constexpr const char* kNames[kOpClassCount] = {
      "other",         "matmul",    "convolution", "attention",  "softmax",
      "normalization", "embedding", "recurrent",   "activation", "pointwise",
      "reduction",     "pooling",   "resampling",  "layout",     "indexing",
      "random",        "factory",   "loss",        "optimizer",  "backward"};
  return kNames[static_cast<int>(op_class)];
}

std::optional<OpClass> FindOpClass(absl::string_view name) {
  for (int i = 0; i < kOpClassCount; ++i) {
    const auto op_class = static_cast<OpClass>(i);
    if (name == OpClassName(op_class)) return op_class;
  }
  return std::nullopt;
}

OpClass ClassOf(absl::string_view name) {
  const Classes& table = Table();
  auto found = table.find(name);
  if (found == table.end()) {
    found = table.find(absl::StripSuffix(name, "_"));
  }
  if (found != table.end()) return found->second;
  if (absl::StrContains(name, "_backward")) return OpClass::kBackward;
  if (absl::StartsWith(name, "_foreach_")) return OpClass::kOptimizer;
  return OpClass::kOther;
}

bool IsForAutograd(absl::string_view name) {
  // Parts of layer_norm, batch_norm, scaled_dot_product_attention and other
  // composites.
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "native_layer_norm",
      "native_batch_norm",
      "native_group_norm",
      "_scaled_dot_product_flash_attention_for_cpu",
      "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_efficient_attention",
      "native_dropout",
      "_log_softmax",
  };
  return names->contains(name);
}

bool IsKeptWhole(absl::string_view name) {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "linear",     "matmul",   "layer_norm",
      "group_norm", "rms_norm", "scaled_dot_product_attention",
  };
  return names->contains(name);
}

}  // namespace djinn::semantics
