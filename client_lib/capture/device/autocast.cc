#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <memory>

#include "client_lib/capture/device/backend.h"

namespace djinn::capture {
namespace {

// PyTorch's macros use these names without a namespace.
using at::DimnameList;
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::autocast::CastPolicy;

// Refuses binary_cross_entropy in half precision, as every accelerator does.
at::Tensor RefuseBinaryCrossEntropy(const at::Tensor&, const at::Tensor&,
                                    const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss "
              "are unsafe to autocast.\nMany models use a sigmoid layer right "
              "before the binary cross entropy layer.\nIn this case, combine "
              "the two layers using torch.nn.functional."
              "binary_cross_entropy_with_logits\nor torch.nn."
              "BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
              "BCEWithLogits are\nsafe to autocast.");
}

void RegisterLists(torch::Library& m) {
#define DJINN_LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define DJINN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define DJINN_FP32_SET_OPT_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define DJINN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(DJINN_LOWER_PRECISION)
  AT_FORALL_FP32(DJINN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(DJINN_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(DJINN_PROMOTE)
#undef DJINN_LOWER_PRECISION
#undef DJINN_FP32
#undef DJINN_FP32_SET_OPT_DTYPE
#undef DJINN_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(RefuseBinaryCrossEntropy));
}

}  // namespace

void RegisterAutocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  // The fallthrough serves the operators that are on no list. PyTorch registers
  // nothing for them, and the first one in an autocast region would fail.
  KeepForever(std::make_unique<torch::Library>(torch::Library::IMPL, "_", kKey,
                                               __FILE__, __LINE__))
      .fallback(torch::CppFunction::makeFallthrough());
  RegisterLists(KeepForever(std::make_unique<torch::Library>(
      torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__)));
}

}  // namespace djinn::capture
