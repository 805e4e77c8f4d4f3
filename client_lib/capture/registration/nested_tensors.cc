#include "client_lib/capture/registration/nested_tensors.h"

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/layer_norm.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_layer_norm.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

namespace djinn::capture {
namespace {

using c10::DispatchKey;

// Runs the operator's kernel of another key.
class SharedKernel : public c10::OperatorKernel {
 public:
  explicit SharedKernel(DispatchKey shared) : shared_(shared) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
    op.callBoxedForDispatchKey(shared_, *stack);
  }

 private:
  const DispatchKey shared_;
};

torch::CppFunction Shared(DispatchKey key) {
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<SharedKernel>(key));
}

// Adds the bias to the padded projections, scales the queries, and gives each
// head its own matrices, in the steps of the CPU's kernel, which reads memory
// itself.
std::tuple<at::Tensor, at::Tensor, at::Tensor> TransformBiasRescaleQkv(
    const at::Tensor& qkv, const at::Tensor& bias, int64_t heads) {
  const at::Tensor padded = qkv.to_padded_tensor(0);
  const c10::ScalarType type = padded.scalar_type();
  const c10::ScalarType computed = at::toOpMathType(type);
  const int64_t width = padded.size(2) / 3;
  TORCH_CHECK(width % heads == 0, "the width ", width, " is no multiple of ",
              heads, " heads");
  const int64_t head = width / heads;
  const at::Tensor sums =
      padded.to(computed)
          .add(bias.to(computed))
          .view({padded.size(0), padded.size(1), 3, heads, head})
          .permute({2, 0, 3, 1, 4});
  const double scale = computed == c10::kDouble
                           ? 1 / std::sqrt(static_cast<double>(head))
                           : 1 / std::sqrt(static_cast<float>(head));
  const auto laid_out = [&](const at::Tensor& part) {
    return part.to(type).contiguous();
  };
  return {laid_out(sums[0].mul(scale)), laid_out(sums[1]), laid_out(sums[2])};
}

// Returns the padded batch without its padding. The sizes are on the CPU, so no
// value has to be read: PyTorch's kernel would select by a mask.
at::Tensor FromPadded(const at::Tensor& padded, const at::Tensor& sizes,
                      bool heads_first) {
  const at::Tensor rows =
      heads_first ? padded.transpose(1, 2).flatten(2) : padded;
  TORCH_CHECK_NOT_IMPLEMENTED(
      rows.dim() == 3 && sizes.dim() == 2 && sizes.size(1) == 2 &&
          sizes.select(1, 1).eq(rows.size(2)).all().item<bool>(),
      "nested tensors on ", c10::get_privateuse1_backend(),
      " are batches of sequences of vectors, got sizes ", sizes);
  std::vector<at::Tensor> places;
  for (int64_t i = 0; i < sizes.size(0); ++i) {
    places.push_back(at::arange(sizes.select(1, 0).select(0, i).item<int64_t>())
                         .add(i * rows.size(1)));
  }
  const at::Tensor index = at::cat(places).to(padded.device());
  return at::native::wrap_buffer(
      rows.flatten(0, 1).index_select(0, index).flatten(), sizes);
}

// Normalizes the rows of a nested tensor, as the CPU's kernel does.
void NormalizeRows(const at::Tensor& rows, const at::Tensor& weight,
                   const at::Tensor& bias, int64_t count, int64_t width,
                   double epsilon, at::Tensor* normalized, at::Tensor* mean,
                   at::Tensor* deviation) {
  const auto [values, means, deviations] = at::native_layer_norm(
      rows.reshape({count, width}), {width}, weight, bias, epsilon);
  normalized->view({count, width}).copy_(values);
  if (mean->defined()) mean->view({count, 1}).copy_(means);
  if (deviation->defined()) deviation->view({count, 1}).copy_(deviations);
}

void RefuseNested(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(), ": nested tensors of strided layout on ",
      c10::get_privateuse1_backend(),
      " do not support it: use the layout torch.jagged");
}

// The operators that the encoder's layers call.
constexpr const char* kShared[] = {
    "_native_multi_head_attention",
    "_nested_tensor_size",
    "_nested_tensor_softmax_with_shape",
    "_nested_tensor_storage_offsets",
    "_nested_tensor_strides",
    "_transformer_encoder_layer_fwd",
    "add_.Tensor",
    "add.Tensor",
    "detach",
    "gelu",
    "gelu_",
    "is_same_size",
    "linear",
    "matmul",
    "native_layer_norm",
    "relu",
    "relu_",
    "to_padded_tensor",
};

}  // namespace

std::set<std::string> RegisterNestedConversions(torch::Library* backend) {
  std::set<std::string> names;
  for (const char* name :
       {"_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned",
        "_nested_view_from_buffer"}) {
    backend->impl(name, Shared(DispatchKey::CPU));
    names.insert(std::string("aten::") + name);
  }
  backend->impl("_nested_from_padded", TORCH_FN(FromPadded));
  names.insert("aten::_nested_from_padded");
  return names;
}

void RegisterNestedTensors() {
  at::native::LayerNormKernel.set_privateuse1_dispatch_ptr(&NormalizeRows);
  // Never destroyed, because the dispatcher outlives static destructors.
  auto* const library = new torch::Library(torch::Library::IMPL, "aten",
                                           DispatchKey::NestedTensorPrivateUse1,
                                           __FILE__, __LINE__);
  for (const char* name : kShared) {
    library->impl(name, Shared(DispatchKey::NestedTensorCPU));
  }
  library->impl("_transform_bias_rescale_qkv",
                TORCH_FN(TransformBiasRescaleQkv));
  auto* const others = new torch::Library(torch::Library::IMPL, "_",
                                          DispatchKey::NestedTensorPrivateUse1,
                                          __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseNested>());
}

}  // namespace djinn::capture
