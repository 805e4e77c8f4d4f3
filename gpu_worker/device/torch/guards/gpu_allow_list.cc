#include "gpu_worker/device/torch/guards/gpu_allow_list.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"

namespace djinn::worker {
namespace {

using NameSet = absl::flat_hash_set<absl::string_view>;

// Names are without the underscore of an in-place form.
const NameSet& AllowedInternal() {
  static const auto* const kNames = new NameSet{
      // Elementwise operators, and operators that check their operands' shapes.
      "_to_copy", "_copy_from_and_resize", "_unsafe_view", "_reshape_copy",
      "_conj", "_conj_copy", "_conj_physical", "_neg_view", "_neg_view_copy",
      "_fw_primal_copy", "_shape_as_tensor", "_local_scalar_dense",
      "_is_all_true", "_is_any_true", "_assert_async",
      "_functional_assert_async", "_assert_scalar", "_functional_assert_scalar",
      "_softmax", "_log_softmax", "_safe_softmax", "_softmax_backward_data",
      "_log_softmax_backward_data", "_masked_scale", "_logcumsumexp",
      "_aminmax", "_add_relu", "_euclidean_dist", "_cast_Byte", "_cast_Char",
      "_cast_Double", "_cast_Float", "_cast_Int", "_cast_Long", "_cast_Short",
      "_cast_Half", "_sample_dirichlet", "_standard_gamma",
      "_standard_gamma_grad", "_dirichlet_grad", "_dim_arange", "_pad_circular",
      "_pad_enum",
      // Operators whose values index_table.h checks.
      "_unsafe_index", "_unsafe_index_put", "_index_put_impl", "_embedding_bag",
      "_embedding_bag_forward_only", "_ctc_loss",
      // Operators that find values on the host or by sorting.
      "_unique", "_unique2",
      // Products and layers.
      "_addmm_activation", "_convolution", "_convolution_mode", "_prelu_kernel",
      "_prelu_kernel_backward", "_weight_norm", "_weight_norm_interface",
      "_trilinear", "_lu_with_info", "_linalg_check_errors", "_linalg_det",
      "_linalg_slogdet", "_linalg_eigh", "_linalg_svd", "_linalg_solve_ex",
      "_fft_r2c", "_fft_c2r", "_fft_c2c", "_adaptive_avg_pool2d",
      "_adaptive_avg_pool3d", "_adaptive_avg_pool2d_backward",
      "_adaptive_avg_pool3d_backward", "_upsample_nearest_exact1d",
      "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
      "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
      "_upsample_lanczos2d_aa", "_cdist_forward", "_pdist_forward",
      "_batch_norm_impl_index", "_native_batch_norm_legit",
      "_native_batch_norm_legit_no_training",
      "_native_batch_norm_legit_functional", "_batch_norm_with_update",
      "_batch_norm_with_update_functional", "_fused_dropout", "_fused_rms_norm",
      // Forward attention without lengths of its own.
      "_fused_sdp_choice", "_scaled_dot_product_attention_math",
      // Operators whose operands operand_guards.h compares.
      "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
      "_scaled_dot_product_flash_attention_for_cpu",
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      "_weight_norm_interface_backward", "_cdist_backward", "_pdist_backward",
      "_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad"};
  return *kNames;
}

struct Refusal {
  absl::string_view op;
  absl::string_view overload;  // empty: all overloads
  absl::string_view cause;
};

constexpr absl::string_view kPivots =
    "its kernel uses pivots that nobody looks at";
constexpr absl::string_view kHost =
    "it reads a tensor on the host that lies on the GPU";
constexpr absl::string_view kLengths =
    "its kernel uses lengths that nobody looks at";

constexpr Refusal kRefused[] = {
    {"lu_unpack", "", kPivots},       {"lu_solve", "", kPivots},
    {"linalg_lu_solve", "", kPivots}, {"linalg_ldl_solve", "", kPivots},
    {"lstm", "data", kHost},          {"gru", "data", kHost},
    {"rnn_tanh", "data", kHost},      {"rnn_relu", "data", kHost},
    {"segment_reduce", "", kLengths},
};

absl::Status Refuse(const c10::FunctionSchema& schema,
                    absl::string_view cause) {
  std::string name = schema.name();
  if (!schema.overload_name().empty()) {
    absl::StrAppend(&name, ".", schema.overload_name());
  }
  return MakeError(
      absl::StatusCode::kPermissionDenied, "OPERATOR_REFUSED",
      absl::StrCat("operator ", name, " is refused on a GPU: ", cause),
      {{"operator", name}});
}

}  // namespace

absl::Status CheckAllowedOnGpu(const c10::FunctionSchema& schema) {
  absl::string_view name = schema.name();
  if (!absl::ConsumePrefix(&name, "aten::")) return absl::OkStatus();
  if (absl::StartsWith(name, "__"))
    return absl::OkStatus();  // operators such as __and__
  absl::ConsumeSuffix(&name, "_");
  // Foreach operators pair the tensors at the same position of their lists.
  if (absl::StartsWith(name, "_foreach_")) return absl::OkStatus();
  if (absl::StartsWith(name, "_") && !AllowedInternal().contains(name)) {
    return Refuse(schema,
                  "its kernel is PyTorch's own, and is not known to check what "
                  "it is given");
  }
  for (const Refusal& refusal : kRefused) {
    if (refusal.op == name && (refusal.overload.empty() ||
                               schema.overload_name() == refusal.overload)) {
      return Refuse(schema, refusal.cause);
    }
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
