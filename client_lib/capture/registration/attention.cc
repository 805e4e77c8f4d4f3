#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include <optional>

#include "client_lib/capture/registration/native_kernels.h"

namespace djinn::capture {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

int64_t ChooseAsCpu(const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& value, const OptionalTensor& mask,
                    double dropout, bool causal, std::optional<double> scale,
                    bool grouped) {
  // The CPU's own choice divides by the number of key heads.
  TORCH_CHECK(!grouped || key.dim() < 3 || key.size(-3) > 0,
              "scaled_dot_product_attention: grouped queries need keys with at "
              "least one head, got ",
              key.sizes());
  // PyTorch's check of the mask's strides applies to other devices than the CPU
  // only. A mask that passes all other checks is left out.
  const sdp::sdp_params params{query,   key,    value,  mask,
                               dropout, causal, grouped};
  const bool passes = sdp::check_tensor_shapes(params, /*debug=*/false) &&
                      sdp::check_attn_mask_shape(params, /*debug=*/false);
  return at::native::_fused_sdp_choice_cpp(query, key, value,
                                           passes ? std::nullopt : mask,
                                           dropout, causal, scale, grouped);
}

}  // namespace

std::set<std::string> RegisterAttentionChoice(torch::Library* library) {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&ChooseAsCpu);
  library->impl("_fused_sdp_choice", TORCH_FN(ChooseAsCpu));
  return {"aten::_fused_sdp_choice"};
}

}  // namespace djinn::capture
