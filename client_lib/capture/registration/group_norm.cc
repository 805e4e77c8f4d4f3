#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client_lib/capture/registration/native_kernels.h"

namespace djinn::capture {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Normalized = std::tuple<Tensor, Tensor, Tensor>;

Tensor ContiguousIfDefined(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous()
                                                 : Tensor();
}

// Splits group_norm(), as PyTorch does on the CPU.
Tensor SplitGroupNorm(const Tensor& input, int64_t groups,
                      const OptionalTensor& weight, const OptionalTensor& bias,
                      double epsilon, bool /*cudnn_enabled*/) {
  TORCH_CHECK(groups > 0, "Expected num groups to be greater than 0, got ",
              groups);
  TORCH_CHECK(input.dim() >= 2,
              "Expected at least 2 dimensions for input tensor but received ",
              input.dim());
  const int64_t batch = input.size(0), channels = input.size(1);
  TORCH_CHECK(channels % groups == 0,
              "Expected number of channels in input to be divisible by ",
              "num_groups, but got input of shape ", input.sizes(),
              " and num_groups=", groups);
  for (const auto& [name, parameter] :
       {std::pair("weight", &weight), std::pair("bias", &bias)}) {
    TORCH_CHECK(
        !parameter->has_value() || !(*parameter)->defined() ||
            ((*parameter)->dim() == 1 && (*parameter)->numel() == channels),
        "Expected ", name, " to be a vector of size equal to the ",
        "number of channels in input, but got ", name, " of shape ",
        (*parameter)->sizes(), " and input of shape ", input.sizes());
  }
  int64_t positions = 1;
  for (const int64_t size : input.sizes().slice(2)) positions *= size;
  return std::get<0>(at::native_group_norm(
      input.contiguous(input.suggest_memory_format()),
      ContiguousIfDefined(weight), ContiguousIfDefined(bias), batch, channels,
      positions, groups, epsilon));
}

// The numbers of a call of native_group_norm().
struct Numbers {
  int64_t batch, channels, positions, groups;
  double epsilon;
};

// Differentiates native_group_norm() by PyTorch's formula for the CPU, which
// keeps gradients of channels-last tensors channels-last.
struct GroupNormFunction : public torch::autograd::Function<GroupNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& input,
                               const OptionalTensor& weight,
                               const OptionalTensor& bias, Numbers numbers) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [output, mean, scale] = at::native_group_norm(
        input, weight, bias, numbers.batch, numbers.channels, numbers.positions,
        numbers.groups, numbers.epsilon);
    context->save_for_backward({input, weight.value_or(Tensor()),
                                bias.value_or(Tensor()), mean, scale});
    // Leaves the gradients of unused results undefined instead of zero.
    context->set_materialize_grads(false);
    context->saved_data["batch"] = numbers.batch;
    context->saved_data["channels"] = numbers.channels;
    context->saved_data["positions"] = numbers.positions;
    context->saved_data["groups"] = numbers.groups;
    context->saved_data["epsilon"] = numbers.epsilon;
    return {output, mean, scale};
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Numbers numbers = {context->saved_data["batch"].toInt(),
                             context->saved_data["channels"].toInt(),
                             context->saved_data["positions"].toInt(),
                             context->saved_data["groups"].toInt(),
                             context->saved_data["epsilon"].toDouble()};
    const bool twice = c10::GradMode::is_enabled() || gradients[1].defined() ||
                       gradients[2].defined();
    variable_list results(4);  // no gradient for the numbers
    if (twice) {
      DifferentiateTwice(saved, numbers, gradients, &results);
    } else if (gradients[0].defined()) {
      const Tensor& input = saved[0];
      const c10::MemoryFormat format = input.suggest_memory_format();
      // An undefined parameter has no number among the inputs.
      std::array<bool, 3> mask = {};
      for (size_t i = 0, edge = 0; i < mask.size(); ++i) {
        mask[i] = saved[i].defined() && context->needs_input_grad(edge++);
      }
      const bool wanted = mask[0];
      // PyTorch's channels-last kernel crashes without the input's gradient.
      mask[0] = true;
      std::tie(results[0], results[1], results[2]) =
          at::native_group_norm_backward(
              gradients[0].contiguous(format), input.contiguous(format),
              saved[3], saved[4], saved[1], numbers.batch, numbers.channels,
              numbers.positions, numbers.groups, mask);
      if (!wanted) results[0] = Tensor();
    }
    return results;
  }

  // Computes gradients that can themselves be differentiated, by PyTorch's own
  // formula, which asks for no device then.
  static void DifferentiateTwice(const variable_list& saved,
                                 const Numbers& numbers,
                                 const variable_list& gradients,
                                 variable_list* results);
};

const c10::OperatorHandle& Operator() {
  static const auto* const op =
      new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(
          "aten::native_group_norm", ""));
  return *op;
}

// Calls native_group_norm() with PyTorch's own derivative.
Normalized WithPyTorchsDerivative(const Tensor& input,
                                  const OptionalTensor& weight,
                                  const OptionalTensor& bias,
                                  const Numbers& numbers) {
  torch::jit::Stack stack = {
      input,          weight,           bias,
      numbers.batch,  numbers.channels, numbers.positions,
      numbers.groups, numbers.epsilon};
  Operator().callBoxedForDispatchKey(c10::DispatchKey::Autograd, stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

void GroupNormFunction::DifferentiateTwice(const variable_list& saved,
                                           const Numbers& numbers,
                                           const variable_list& gradients,
                                           variable_list* results) {
  const at::AutoGradMode with_gradients(true);
  const auto [output, mean, scale] =
      WithPyTorchsDerivative(saved[0], saved[1], saved[2], numbers);
  variable_list outputs, directions, inputs;
  std::vector<size_t> places;
  const std::array<const Tensor*, 3> all = {&output, &mean, &scale};
  for (size_t i = 0; i < all.size(); ++i) {
    if (!gradients[i].defined()) continue;
    outputs.push_back(*all[i]);
    directions.push_back(gradients[i]);
  }
  for (size_t i = 0; i < 3; ++i) {
    if (!saved[i].defined() || !saved[i].requires_grad()) continue;
    inputs.push_back(saved[i]);
    places.push_back(i);
  }
  if (outputs.empty() || inputs.empty()) return;
  const variable_list found =
      torch::autograd::grad(outputs, inputs, directions, /*retain_graph=*/true,
                            /*create_graph=*/true, /*allow_unused=*/true);
  for (size_t i = 0; i < places.size(); ++i) (*results)[places[i]] = found[i];
}

bool HasTangent(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() &&
         tensor->_fw_grad(/*level=*/0).defined();
}

Normalized NativeGroupNorm(const Tensor& input, const OptionalTensor& weight,
                           const OptionalTensor& bias, int64_t batch,
                           int64_t channels, int64_t positions, int64_t groups,
                           double epsilon) {
  const Numbers numbers = {batch, channels, positions, groups, epsilon};
  const bool is_plain =
      input.suggest_memory_format() == c10::MemoryFormat::Contiguous;
  // A derivative in C++ has no tangents, and functorch refuses it.
  if (is_plain || HasTangent(input) || HasTangent(weight) || HasTangent(bias) ||
      at::functorch::maybeCurrentDynamicLayer().has_value()) {
    return WithPyTorchsDerivative(input, weight, bias, numbers);
  }
  const variable_list results =
      GroupNormFunction::apply(input, weight, bias, numbers);
  return {results[0], results[1], results[2]};
}

}  // namespace

std::map<std::string, c10::KernelFunction> GroupNormSplits() {
  return {{"aten::group_norm", c10::KernelFunction::makeFromUnboxedFunction(
                                   TORCH_FN(SplitGroupNorm))}};
}

void RegisterGroupNormDerivative(torch::Library* autograd) {
  autograd->impl("native_group_norm", TORCH_FN(NativeGroupNorm));
}

}  // namespace djinn::capture
