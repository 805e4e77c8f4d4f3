#include "gpu_worker/device/torch/guards/library_guards.h"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/isfinite.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/guards/named_values.h"

namespace djinn::worker {
namespace {

using Sizes = std::vector<int64_t>;

// The largest coordinate of a region, in elements. A kernel takes as many
// samples as a region is large.
constexpr double kFarthest = 1 << 16;
// The largest number among the arguments that the guards compute with.
constexpr int64_t kMostElements = 1 << 20;

// Returns an error that names the argument unless it has these sizes.
absl::Status CheckSizes(const NamedValues& values, absl::string_view name,
                        const Sizes& sizes) {
  const at::Tensor tensor = values.Tensor(name);
  return tensor.defined() && tensor.sizes() == c10::IntArrayRef(sizes)
             ? absl::OkStatus()
             : DoesNotFit(name);
}

absl::Status CheckDimensions(const NamedValues& values, absl::string_view name,
                             int64_t dimensions) {
  const at::Tensor tensor = values.Tensor(name);
  return tensor.defined() && tensor.dim() == dimensions ? absl::OkStatus()
                                                        : DoesNotFit(name);
}

absl::Status CheckPositive(const NamedValues& values,
                           std::initializer_list<absl::string_view> names) {
  for (const absl::string_view name : names) {
    const int64_t value = values.Integer(name);
    if (value <= 0 || value > kMostElements) return DoesNotFit(name);
  }
  return absl::OkStatus();
}

// Returns whether all elements are at least `first` and less than `end`. A NaN
// is neither.
bool AreBetween(const at::Tensor& tensor, int64_t first, int64_t end) {
  return tensor.numel() == 0 || (tensor.ge(first).all().item<bool>() &&
                                 tensor.lt(end).all().item<bool>());
}

absl::Status CheckBetween(const NamedValues& values, absl::string_view name,
                          int64_t first, int64_t end) {
  const at::Tensor tensor = values.Tensor(name);
  return tensor.defined() && AreBetween(tensor, first, end) ? absl::OkStatus()
                                                            : DoesNotFit(name);
}

// Checks regions: the number of an image and four coordinates each.
absl::Status CheckRegions(const NamedValues& values, int64_t images) {
  const at::Tensor regions = values.Tensor("rois");
  if (!regions.defined() || regions.dim() != 2 || regions.size(1) != 5 ||
      !regions.is_floating_point()) {
    return DoesNotFit("rois");
  }
  const at::Tensor coordinates =
      regions.narrow(1, 1, 4).to(at::kDouble) * values.Number("spatial_scale");
  if (!AreBetween(regions.select(1, 0), 0, images) ||
      !coordinates.abs().le(kFarthest).all().item<bool>()) {
    return DoesNotFit("rois");
  }
  return CheckPositive(values, {"pooled_height", "pooled_width"});
}

absl::Status CheckPooling(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(CheckDimensions(values, "input", 4));
  return CheckRegions(values, values.Tensor("input").size(0));
}

// Checks the gradient of pooled regions, which has the input's channels.
absl::Status CheckPoolingBackward(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(
      CheckPositive(values, {"batch_size", "channels", "height", "width"}));
  DJINN_RETURN_IF_ERROR(CheckRegions(values, values.Integer("batch_size")));
  return CheckSizes(
      values, "grad",
      {values.Tensor("rois").size(0), values.Integer("channels"),
       values.Integer("pooled_height"), values.Integer("pooled_width")});
}

absl::Status CheckMaximaBackward(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(CheckPoolingBackward(values));
  DJINN_RETURN_IF_ERROR(
      CheckSizes(values, "argmax", values.Tensor("grad").sizes().vec()));
  return CheckBetween(values, "argmax", -1,
                      values.Integer("height") * values.Integer("width"));
}

absl::Status CheckPartsBackward(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(
      CheckPositive(values, {"batch_size", "channels", "height", "width"}));
  DJINN_RETURN_IF_ERROR(CheckRegions(values, values.Integer("batch_size")));
  const int64_t height = values.Integer("pooled_height");
  const int64_t width = values.Integer("pooled_width");
  DJINN_RETURN_IF_ERROR(CheckSizes(
      values, "grad",
      {values.Tensor("rois").size(0),
       values.Integer("channels") / (height * width), height, width}));
  DJINN_RETURN_IF_ERROR(CheckSizes(values, "channel_mapping",
                                   values.Tensor("grad").sizes().vec()));
  return CheckBetween(values, "channel_mapping", 0, values.Integer("channels"));
}

absl::Status CheckDeformation(const NamedValues& values) {
  for (const absl::string_view name : {"input", "weight", "offset"}) {
    DJINN_RETURN_IF_ERROR(CheckDimensions(values, name, 4));
  }
  DJINN_RETURN_IF_ERROR(
      CheckPositive(values, {"stride_h", "stride_w", "dilation_h", "dilation_w",
                             "groups", "offset_groups"}));
  const at::Tensor input = values.Tensor("input");
  const at::Tensor weight = values.Tensor("weight");
  const int64_t groups = values.Integer("groups");
  const int64_t parts = values.Integer("offset_groups");
  Sizes output;
  for (const int dim : {2, 3}) {
    const std::string axis = dim == 2 ? "h" : "w";
    const int64_t padding = values.Integer("pad_" + axis);
    const int64_t kernel =
        values.Integer("dilation_" + axis) * (weight.size(dim) - 1) + 1;
    if (padding < 0 || padding > kMostElements)
      return DoesNotFit("pad_" + axis);
    if (weight.size(dim) == 0) return DoesNotFit("weight");
    const int64_t room = input.size(dim) + 2 * padding - kernel;
    if (room < 0) return DoesNotFit("weight");
    output.push_back(room / values.Integer("stride_" + axis) + 1);
  }
  if (input.size(1) != weight.size(1) * groups ||
      weight.size(0) % groups != 0) {
    return DoesNotFit("weight");
  }
  if (input.size(1) % parts != 0) return DoesNotFit("offset_groups");
  const int64_t taps = parts * weight.size(2) * weight.size(3);
  DJINN_RETURN_IF_ERROR(CheckSizes(
      values, "offset", {input.size(0), 2 * taps, output[0], output[1]}));
  if (values.Boolean("use_mask")) {
    DJINN_RETURN_IF_ERROR(CheckSizes(
        values, "mask", {input.size(0), taps, output[0], output[1]}));
  }
  if (values.Tensor("grad").defined()) {
    DJINN_RETURN_IF_ERROR(CheckSizes(
        values, "grad", {input.size(0), weight.size(0), output[0], output[1]}));
  }
  return at::isfinite(values.Tensor("offset")).all().item<bool>()
             ? absl::OkStatus()
             : DoesNotFit("offset");
}

absl::Status CheckTransducer(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(CheckDimensions(values, "logits", 4));
  const at::Tensor logits = values.Tensor("logits");
  DJINN_RETURN_IF_ERROR(
      CheckSizes(values, "targets", {logits.size(0), logits.size(2) - 1}));
  DJINN_RETURN_IF_ERROR(CheckSizes(values, "logit_lengths", {logits.size(0)}));
  DJINN_RETURN_IF_ERROR(CheckSizes(values, "target_lengths", {logits.size(0)}));
  DJINN_RETURN_IF_ERROR(CheckBetween(values, "targets", 0, logits.size(3)));
  DJINN_RETURN_IF_ERROR(
      CheckBetween(values, "logit_lengths", 1, logits.size(1) + 1));
  return CheckBetween(values, "target_lengths", 0, logits.size(2));
}

absl::Status CheckForcedAlignment(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(CheckDimensions(values, "log_probs", 3));
  const int64_t classes = values.Tensor("log_probs").size(2);
  const int64_t blank = values.Integer("blank");
  if (blank < 0 || blank >= classes) return DoesNotFit("blank");
  return CheckBetween(values, "targets", 0, classes);
}

absl::Status CheckFilter(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(CheckDimensions(values, "input_signal_windows", 3));
  DJINN_RETURN_IF_ERROR(CheckDimensions(values, "a_coeff_flipped", 2));
  const at::Tensor input = values.Tensor("input_signal_windows");
  const int64_t order = values.Tensor("a_coeff_flipped").size(1);
  if (order < 1) return DoesNotFit("a_coeff_flipped");
  DJINN_RETURN_IF_ERROR(
      CheckSizes(values, "a_coeff_flipped", {input.size(1), order}));
  return CheckSizes(values, "padded_output_waveform",
                    {input.size(0), input.size(1), input.size(2) + order - 1});
}

absl::Status CheckOverdrive(const NamedValues& values) {
  DJINN_RETURN_IF_ERROR(CheckDimensions(values, "waveform", 2));
  const Sizes sizes = values.Tensor("waveform").sizes().vec();
  for (const absl::string_view name : {"temp", "output_waveform"}) {
    DJINN_RETURN_IF_ERROR(CheckSizes(values, name, sizes));
  }
  for (const absl::string_view name : {"last_in", "last_out"}) {
    DJINN_RETURN_IF_ERROR(CheckSizes(values, name, {sizes[0]}));
  }
  return absl::OkStatus();
}

constexpr NamedGuard kGuards[] = {
    {"torchvision::roi_align", CheckPooling},
    {"torchvision::roi_pool", CheckPooling},
    {"torchvision::ps_roi_align", CheckPooling},
    {"torchvision::ps_roi_pool", CheckPooling},
    {"torchvision::_roi_align_backward", CheckPoolingBackward},
    {"torchvision::_roi_pool_backward", CheckMaximaBackward},
    {"torchvision::_ps_roi_align_backward", CheckPartsBackward},
    {"torchvision::_ps_roi_pool_backward", CheckPartsBackward},
    {"torchvision::deform_conv2d", CheckDeformation},
    {"torchvision::_deform_conv2d_backward", CheckDeformation},
    {"torchaudio::rnnt_loss_forward", CheckTransducer},
    {"torchaudio::forced_align", CheckForcedAlignment},
    {"torchaudio::_lfilter_core_loop", CheckFilter},
    {"torchaudio::_overdrive_core_loop", CheckOverdrive},
};

}  // namespace

std::unique_ptr<ArgumentCheck> MakeLibraryGuard(
    const c10::FunctionSchema& schema) {
  return MakeGuard(kGuards, schema);
}

}  // namespace djinn::worker
