#include "gpu_worker/device/torch/guards/operand_guards.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ATen/ExpandUtils.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/numeric/int128.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "c10/core/MemoryFormat.h"
#include "common/base/status_macros.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/torch/guards/fused_guards.h"
#include "gpu_worker/device/torch/guards/named_arguments.h"
#include "gpu_worker/device/torch/guards/size_table.h"

namespace djinn::worker {
namespace {

using Sizes = std::vector<int64_t>;

bool IsEmpty(absl::Span<const int64_t> sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

// Kernels index statistics by the input's channels.
absl::Status CheckChannels(const NamedArguments& arguments) {
  const View input = arguments.View("input");
  if (!input.has_value() || input->sizes.size() < 2) {
    return absl::InvalidArgumentError("argument input has no channels");
  }
  const int64_t channels = input->sizes[1];
  for (const absl::string_view name :
       {"weight", "bias", "running_mean", "running_var"}) {
    const View view = arguments.View(name);
    if (!view.has_value()) continue;
    if (view->sizes.size() != 1 || view->sizes[0] != channels) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", name, " is ", srg::DescribeView(*view),
                       ", the input has ", channels, " channels"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBatchNorm(const NamedArguments& arguments, bool backward) {
  DJINN_RETURN_IF_ERROR(CheckChannels(arguments));
  const bool training =
      arguments.Boolean(backward ? "train" : "training")
          .value_or(arguments.Boolean("update").value_or(false));
  if (!training && (!arguments.View("running_mean").has_value() ||
                    !arguments.View("running_var").has_value())) {
    return absl::InvalidArgumentError("evaluation without running statistics");
  }
  if (!backward) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "grad_out", "input"));
  if (!training) return absl::OkStatus();
  const int64_t channels = arguments.View("input")->sizes[1];
  const View spread = arguments.View("save_invstd");
  for (const View& saved :
       {arguments.View("save_mean"),
        spread.has_value() ? spread : arguments.View("save_var")}) {
    if (!saved.has_value() || saved->sizes.size() != 1 ||
        saved->sizes[0] != channels) {
      return absl::InvalidArgumentError(
          "the saved statistics do not fit the input");
    }
  }
  return absl::OkStatus();
}

bool IsChannelsLast(const srg::TensorView& view) {
  const c10::IntArrayRef sizes(view.sizes.data(), view.sizes.size());
  const c10::IntArrayRef strides(view.strides.data(), view.strides.size());
  return (sizes.size() == 4 &&
          c10::is_channels_last_strides_2d(sizes, strides)) ||
         (sizes.size() == 5 &&
          c10::is_channels_last_strides_3d(sizes, strides));
}

// The kernel for channels-last images writes the input's gradient whether or
// not there is one.
absl::Status CheckGroupNormBackward(const NamedArguments& arguments) {
  const View input = arguments.View("input");
  const std::optional<std::vector<bool>> mask =
      arguments.Booleans("output_mask");
  if (!input.has_value() || !mask.has_value() || mask->empty() || (*mask)[0] ||
      !IsChannelsLast(*input)) {
    return absl::OkStatus();
  }
  return Misfit("input", *input,
                "not be channels-last if output_mask leaves out its gradient");
}

// Each row has a mean and a deviation; the kernel takes the number of rows from
// the input.
absl::Status CheckLayerNormBackward(const NamedArguments& arguments) {
  const View input = arguments.View("input");
  const size_t count = arguments.Integers("normalized_shape")
                           .value_or(std::vector<int64_t>())
                           .size();
  if (!input.has_value()) return absl::OkStatus();
  if (count > input->sizes.size()) {
    return Misfit("input", *input, "have all that normalized_shape has");
  }
  Sizes rows(input->sizes.begin(), input->sizes.end());
  std::fill_n(rows.rbegin(), count, 1);
  for (const absl::string_view name : {"mean", "rstd"}) {
    const View view = arguments.View(name);
    if (!view.has_value()) continue;
    DJINN_RETURN_IF_ERROR(
        CheckSizes(name, *view, rows, Describe("input", *input)));
  }
  return absl::OkStatus();
}

// Each place of the grid has a gradient for each channel.
absl::Status CheckGridBackward(const NamedArguments& arguments) {
  const View grad = arguments.View("grad_output");
  const View input = arguments.View("input");
  const View grid = arguments.View("grid");
  if (!grad.has_value() || !input.has_value() || !grid.has_value()) {
    return absl::OkStatus();
  }
  if (input->sizes.size() < 2 || grid->sizes.size() != input->sizes.size()) {
    return Misfit("grid", *grid,
                  absl::StrCat("fit ", Describe("input", *input)));
  }
  Sizes sizes = {input->sizes[0], input->sizes[1]};
  sizes.insert(sizes.end(), grid->sizes.begin() + 1, grid->sizes.end() - 1);
  return CheckSizes("grad_output", *grad, sizes,
                    absl::StrCat(Describe("input", *input), " and ",
                                 Describe("grid", *grid)));
}

absl::Status CheckUnfoldBackward(const NamedArguments& arguments) {
  const View grad = arguments.View("grad_in");
  const auto input = arguments.Integers("input_sizes");
  const auto dim = arguments.Integer("dim");
  const auto size = arguments.Integer("size");
  const auto step = arguments.Integer("step");
  if (!grad.has_value() || !input.has_value() || !dim.has_value() ||
      !size.has_value() || !step.has_value()) {
    return absl::OkStatus();
  }
  // Lets PyTorch compute the sizes on a tensor without memory.
  const at::Tensor unfolded =
      at::empty(*input, at::TensorOptions().device(at::kMeta))
          .unfold(*dim, *size, *step);
  return CheckSizes("grad_in", *grad, unfolded.sizes(),
                    "the windows of input_sizes");
}

// The gradient has the distances of each row to all later rows.
absl::Status CheckPdistBackward(const NamedArguments& arguments) {
  const View grad = arguments.View("grad");
  const View self = arguments.View("self");
  if (!grad.has_value() || !self.has_value()) return absl::OkStatus();
  if (self->sizes.size() != 2) return Misfit("self", *self, "be of rows");
  constexpr int64_t kMaxRows = int64_t{1} << 31;
  const int64_t rows = self->sizes[0];
  if (rows == 0) return Misfit("self", *self, "have rows");
  if (rows > kMaxRows) return Misfit("self", *self, "have fewer rows");
  return CheckSizes("grad", *grad, {rows * (rows - 1) / 2},
                    Describe("self", *self));
}

// The gradient has the distances of each row of x1 to each row of x2.
absl::Status CheckCdistBackward(const NamedArguments& arguments) {
  const View grad = arguments.View("grad");
  const View x1 = arguments.View("x1");
  const View x2 = arguments.View("x2");
  if (!grad.has_value() || !x1.has_value() || !x2.has_value()) {
    return absl::OkStatus();
  }
  if (x1->sizes.size() < 2) return Misfit("x1", *x1, "be of rows");
  if (x2->sizes.size() < 2) return Misfit("x2", *x2, "be of rows");
  if (x1->sizes.back() != x2->sizes.back()) {
    return Misfit("x2", *x2, absl::StrCat("fit ", Describe("x1", *x1)));
  }
  const auto batch = [](const srg::TensorView& view) {
    return at::IntArrayRef(view.sizes.data(), view.sizes.size() - 2);
  };
  Sizes sizes = at::infer_size(batch(*x1), batch(*x2));
  sizes.push_back(x1->sizes.end()[-2]);
  sizes.push_back(x2->sizes.end()[-2]);
  return CheckSizes(
      "grad", *grad, sizes,
      absl::StrCat(Describe("x1", *x1), " and ", Describe("x2", *x2)));
}

// There is a gradient for each row, or one for all.
absl::Status CheckMarginLossBackward(const NamedArguments& arguments) {
  constexpr int64_t kNoReduction = 0;
  const View grad = arguments.View("grad_output");
  const View target = arguments.View("target");
  if (!grad.has_value() || !target.has_value() || grad->sizes.empty()) {
    return absl::OkStatus();
  }
  if (arguments.Integer("reduction") != kNoReduction) {
    return CheckSizes("grad_output", *grad, {}, "a reduction");
  }
  return CheckSizes("grad_output", *grad, target->sizes,
                    Describe("target", *target));
}

// There is a pivot for each column, or for each row if there are fewer rows.
absl::Status CheckLuUnpack(const NamedArguments& arguments) {
  const View lu = arguments.View("LU_data");
  const View pivots = arguments.View("LU_pivots");
  if (!lu.has_value() || !pivots.has_value() ||
      arguments.Boolean("unpack_pivots") == false) {
    return absl::OkStatus();
  }
  if (lu->sizes.size() < 2) return Misfit("LU_data", *lu, "be of matrices");
  Sizes sizes(lu->sizes.begin(), lu->sizes.end() - 1);
  sizes.back() = std::min(sizes.back(), lu->sizes.back());
  return CheckSizes("LU_pivots", *pivots, sizes, Describe("LU_data", *lu));
}

// LAPACK's driver gelss does not accept right-hand sides without columns.
absl::Status CheckLeastSquares(const NamedArguments& arguments) {
  const View self = arguments.View("self");
  const View b = arguments.View("b");
  if (!self.has_value() || !b.has_value() || b->sizes.empty() ||
      arguments.Text("driver") != "gelss" || b->sizes.back() != 0 ||
      IsEmpty(self->sizes)) {
    return absl::OkStatus();
  }
  return Misfit("b", *b, "have columns for driver gelss");
}

// There is a norm for each slice along the first or the last dimension.
absl::Status CheckWeightNorm(const NamedArguments& arguments, bool backward) {
  const absl::string_view name = backward ? "saved_v" : "v";
  const View v = arguments.View(name);
  if (!v.has_value()) return absl::OkStatus();
  const int64_t rank = static_cast<int64_t>(v->sizes.size());
  const int64_t dim = arguments.Integer("dim").value_or(0);
  if (rank == 0 || (dim != 0 && dim != rank - 1)) {
    return Misfit(name, *v, absl::StrCat("begin or end with dimension ", dim));
  }
  if (IsEmpty(v->sizes)) return Misfit(name, *v, "have elements");
  for (const absl::string_view norms : {"g", "saved_g", "saved_norms"}) {
    const View view = arguments.View(norms);
    if (!view.has_value()) continue;
    if (srg::ElementCount(*view).value_or(0) != v->sizes[dim]) {
      return Misfit(norms, *view,
                    absl::StrCat("have ", v->sizes[dim], " elements to fit ",
                                 Describe(name, *v)));
    }
  }
  return absl::OkStatus();
}

// The call names the kernel's sizes twice, which must agree.
absl::Status CheckSlowConvolution(const NamedArguments& arguments) {
  const View weight = arguments.View("weight");
  const auto window = arguments.Integers("kernel_size");
  if (!weight.has_value() || !window.has_value()) return absl::OkStatus();
  Sizes sizes = {kAnySize, kAnySize};
  sizes.insert(sizes.end(), window->begin(), window->end());
  return CheckSizes("weight", *weight, sizes, "kernel_size");
}

// The kernel reads the first of the packed batches, and takes the size of every
// hidden state from the first one.
absl::Status CheckRecurrence(const NamedArguments& arguments) {
  const View batches = arguments.View("batch_sizes");
  if (batches.has_value() &&
      (batches->sizes.size() != 1 || batches->sizes[0] == 0 ||
       (batches->sizes[0] > 1 && batches->strides[0] != 1))) {
    return Misfit("batch_sizes", *batches, "be a dense list that is not empty");
  }
  const std::vector<srg::TensorView> hidden = arguments.Views("hx");
  for (size_t i = 1; i < hidden.size(); ++i) {
    Sizes sizes(hidden[i].sizes.begin(), hidden[i].sizes.end());
    std::copy_n(hidden[0].sizes.begin(),
                std::min<size_t>({2, sizes.size(), hidden[0].sizes.size()}),
                sizes.begin());
    DJINN_RETURN_IF_ERROR(CheckSizes(absl::StrCat("hx[", i, "]"), hidden[i],
                                     sizes, Describe("hx[0]", hidden[0])));
  }
  return absl::OkStatus();
}

// Checks sizes that PyTorch does not: a vendor's kernel derives the weights'
// sizes from the hidden state without comparing them.
absl::Status CheckLstm(const NamedArguments& arguments) {
  DJINN_RETURN_IF_ERROR(CheckRecurrence(arguments));
  const View input = arguments.View("input");
  const std::vector<srg::TensorView> hidden = arguments.Views("hx");
  const std::vector<srg::TensorView> weights = arguments.Views("params");
  if (!input.has_value() || hidden.size() != 2 ||
      arguments.Boolean("batch_first") == std::nullopt) {
    // the operator reports the error itself, or the batches are packed
    return absl::OkStatus();
  }
  if (input->sizes.size() != 3) {
    return Misfit("input", *input, "have 3 dimensions");
  }
  for (const srg::TensorView& view : hidden) {
    if (view.sizes.size() != 3) return Misfit("hx", view, "have 3 dimensions");
  }
  constexpr int64_t kGates = 4;
  const int64_t directions =
      arguments.Boolean("bidirectional").value_or(false) ? 2 : 1;
  const int64_t layers = arguments.Integer("num_layers").value_or(0);
  const int64_t batch =
      input->sizes[arguments.Boolean("batch_first").value_or(false) ? 0 : 1];
  const int64_t out = hidden[0].sizes[2];
  const int64_t cells = hidden[1].sizes[2];
  const std::string fits =
      absl::StrCat(Describe("input", *input), ", ",
                   Describe("hx[0]", hidden[0]), " and the layers");
  DJINN_RETURN_IF_ERROR(CheckSizes(
      "hx[0]", hidden[0], {layers * directions, batch, kAnySize}, fits));
  const bool biases = arguments.Boolean("has_biases").value_or(false);
  std::vector<Sizes> due;
  // Stops once more weights are due than there are, whatever the number of
  // layers.
  for (int64_t i = 0; i < layers * directions && due.size() <= weights.size();
       ++i) {
    due.push_back(
        {kGates * cells, i < directions ? input->sizes[2] : out * directions});
    due.push_back({kGates * cells, out});
    if (biases) due.insert(due.end(), 2, {kGates * cells});
    if (out != cells) due.push_back({out, cells});
  }
  if (due.size() != weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument params has ", weights.size(),
                     " entries, must have all that fit ", fits));
  }
  for (size_t i = 0; i < due.size(); ++i) {
    DJINN_RETURN_IF_ERROR(
        CheckSizes(absl::StrCat("params[", i, "]"), weights[i], due[i], fits));
  }
  return absl::OkStatus();
}

// The kernel assumes a nonzero stride along the dimension by which it sorts.
absl::Status CheckMedian(const NamedArguments& arguments) {
  const View self = arguments.View("self");
  const auto given = arguments.Integer("dim");
  if (!self.has_value() || !given.has_value()) return absl::OkStatus();
  const int64_t rank = static_cast<int64_t>(self->sizes.size());
  const int64_t dim = *given < 0 ? *given + rank : *given;
  if (dim < 0 || dim >= rank || self->sizes[dim] < 2 ||
      self->strides[dim] != 0 || IsEmpty(self->sizes)) {
    return absl::OkStatus();
  }
  return Misfit("self", *self,
                absl::StrCat("not be expanded along dimension ", dim));
}

// Kernels write outputs as if they were dense, or through vendors' routines
// that take a stride of 0 for 1.
absl::Status CheckOutputs(const c10::FunctionSchema& schema,
                          const NamedArguments& arguments) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (!argument.is_out()) continue;
    if (const View view = arguments.View(argument.name())) {
      DJINN_RETURN_IF_ERROR(CheckDense(argument.name(), *view));
    }
    for (const srg::TensorView& view : arguments.Views(argument.name())) {
      DJINN_RETURN_IF_ERROR(CheckDense(argument.name(), view));
    }
  }
  return absl::OkStatus();
}

// The kernel steps through all matrices of an output by the stride of the
// innermost batch dimension.
absl::Status CheckTriangle(const NamedArguments& arguments) {
  const View out = arguments.View("out");
  if (!out.has_value() || out->sizes.size() < 4 || IsEmpty(out->sizes)) {
    return absl::OkStatus();
  }
  const size_t batch = out->sizes.size() - 2;
  // The types are wide because sizes and strides may be as large as a storage
  // allows.
  absl::int128 matrices = 1;
  absl::int128 room = 0;
  for (size_t i = 0; i < batch; ++i) {
    if (out->strides[i] != 0) matrices *= out->sizes[i];
    room += absl::int128(out->sizes[i] - 1) * out->strides[i];
  }
  const int64_t step = std::max<int64_t>(out->strides[batch - 1], 1);
  if ((matrices - 1) * step <= room) return absl::OkStatus();
  return Misfit("out", *out, "have its matrices one behind the other");
}

// Kernels use the addresses of lists' entries even if these lie on the host.
absl::Status CheckEntriesOnGpu(const c10::FunctionSchema& schema,
                               const CallTemplate& call) {
  for (const Place& place : call.places) {
    const auto* list = std::get_if<TensorListSource>(&place.source);
    if (list == nullptr) continue;
    for (const TensorSource& entry : list->entries) {
      if (!std::holds_alternative<srg::ScalarTensor>(entry)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", schema.arguments()[place.argument].name(),
                       " has an entry of the host's"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBatchNormForward(const NamedArguments& arguments) {
  return CheckBatchNorm(arguments, false);
}

absl::Status CheckBatchNormBackward(const NamedArguments& arguments) {
  return CheckBatchNorm(arguments, true);
}

absl::Status CheckWeightNormForward(const NamedArguments& arguments) {
  return CheckWeightNorm(arguments, false);
}

absl::Status CheckWeightNormBackward(const NamedArguments& arguments) {
  return CheckWeightNorm(arguments, true);
}

using Guard = absl::Status (*)(const NamedArguments& arguments);

struct NamedGuard {
  absl::string_view op;
  Guard guard;
};

constexpr NamedGuard kGuards[] = {
    {"native_batch_norm", CheckBatchNormForward},
    {"_native_batch_norm_legit", CheckBatchNormForward},
    {"_native_batch_norm_legit_functional", CheckBatchNormForward},
    {"_native_batch_norm_legit_no_training", CheckBatchNormForward},
    {"_batch_norm_with_update", CheckBatchNormForward},
    {"_batch_norm_with_update_functional", CheckBatchNormForward},
    {"native_batch_norm_backward", CheckBatchNormBackward},
    {"batch_norm_backward", CheckBatchNormBackward},
    {"batch_norm_update_stats", CheckChannels},
    {"scaled_dot_product_attention", CheckAttention},
    {"_scaled_dot_product_flash_attention_for_cpu", CheckFusedAttentionForward},
    {"_scaled_dot_product_flash_attention_for_cpu_backward",
     CheckFusedAttentionBackward},
    {"_native_multi_head_attention", CheckHeads},
    {"_transformer_encoder_layer_fwd", CheckHeads},
    {"native_group_norm_backward", CheckGroupNormBackward},
    {"native_layer_norm_backward", CheckLayerNormBackward},
    {"grid_sampler_2d_backward", CheckGridBackward},
    {"grid_sampler_3d_backward", CheckGridBackward},
    {"unfold_backward", CheckUnfoldBackward},
    {"_pdist_backward", CheckPdistBackward},
    {"_cdist_backward", CheckCdistBackward},
    {"multi_margin_loss_backward", CheckMarginLossBackward},
    {"lu_unpack", CheckLuUnpack},
    {"linalg_lstsq", CheckLeastSquares},
    {"_weight_norm_interface", CheckWeightNormForward},
    {"_weight_norm_interface_backward", CheckWeightNormBackward},
    {"slow_conv3d", CheckSlowConvolution},
    {"slow_conv3d_forward", CheckSlowConvolution},
    {"slow_conv_transpose2d", CheckSlowConvolution},
    {"slow_conv_transpose3d", CheckSlowConvolution},
    {"_fused_adam", CheckFusedOptimizer},
    {"_fused_adam_", CheckFusedOptimizer},
    {"_fused_adamw", CheckFusedOptimizer},
    {"_fused_adamw_", CheckFusedOptimizer},
    {"_fused_sgd", CheckFusedOptimizer},
    {"_fused_sgd_", CheckFusedOptimizer},
    {"_fused_adagrad", CheckFusedOptimizer},
    {"_fused_adagrad_", CheckFusedOptimizer},
    {"median", CheckMedian},
    {"nanmedian", CheckMedian},
    {"tril", CheckTriangle},
    {"triu", CheckTriangle},
    {"lstm", CheckLstm},
    {"gru", CheckRecurrence},
    {"rnn_tanh", CheckRecurrence},
    {"rnn_relu", CheckRecurrence},
};

// Guards that only kernels on a GPU need.
constexpr NamedGuard kGuardsOnGpu[] = {
    {"_fused_adam", CheckFusedAdamOnGpu},
    {"_fused_adam_", CheckFusedAdamOnGpu},
    {"_fused_adamw", CheckFusedAdamOnGpu},
    {"_fused_adamw_", CheckFusedAdamOnGpu},
    {"_fused_sgd", CheckFusedSgdOnGpu},
    {"_fused_sgd_", CheckFusedSgdOnGpu},
    {"_fused_adagrad", CheckFusedAdagradOnGpu},
    {"_fused_adagrad_", CheckFusedAdagradOnGpu},
    {"_native_multi_head_attention", CheckHeadsOnGpu},
    {"_transformer_encoder_layer_fwd", CheckHeadsOnGpu},
};

}  // namespace

absl::Status CheckOperandsOnGpu(const c10::FunctionSchema& schema,
                                const CallTemplate& call) {
  absl::string_view name = schema.name();
  if (!absl::ConsumePrefix(&name, "aten::")) return absl::OkStatus();
  if (absl::StartsWith(name, "_fused_")) {
    DJINN_RETURN_IF_ERROR(CheckEntriesOnGpu(schema, call));
  }
  const NamedArguments arguments(schema, call);
  for (const NamedGuard& named : kGuardsOnGpu) {
    if (named.op == name) DJINN_RETURN_IF_ERROR(named.guard(arguments));
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const c10::FunctionSchema& schema,
                           const CallTemplate& call) {
  absl::string_view name = schema.name();
  if (!absl::ConsumePrefix(&name, "aten::")) return absl::OkStatus();
  const NamedArguments arguments(schema, call);
  DJINN_RETURN_IF_ERROR(CheckOutputs(schema, arguments));
  for (const NamedGuard& named : kGuards) {
    if (named.op == name) DJINN_RETURN_IF_ERROR(named.guard(arguments));
  }
  return CheckSizeTable(name, arguments);
}

}  // namespace djinn::worker
