#include "gpu_worker/device/torch/guards/size_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

// The argument has as many dimensions as the other, and equal sizes except for
// the last `free`, which the operator itself checks. The last `free` sizes of
// the other are not 0.
struct SizeRule {
  absl::string_view op;
  absl::string_view argument;
  absl::string_view other;
  size_t free = 0;
};

constexpr SizeRule kSizes[] = {
    {"_softmax_backward_data", "grad_output", "output"},
    {"_log_softmax_backward_data", "grad_output", "output"},
    {"native_layer_norm_backward", "grad_out", "input"},
    {"_weight_norm_interface_backward", "grad_w", "saved_v"},
    {"_pdist_backward", "pdist", "grad"},
    {"_cdist_backward", "cdist", "grad"},
    {"_adaptive_avg_pool2d_backward", "grad_output", "self", 2},
    {"_adaptive_avg_pool3d_backward", "grad_output", "self", 3},
    {"adaptive_avg_pool3d_backward", "grad_output", "self", 3},
    {"avg_pool2d_backward", "grad_output", "self", 2},
    {"avg_pool3d_backward", "grad_output", "self", 3},
    {"max_pool2d_with_indices_backward", "grad_output", "self", 2},
    {"max_pool2d_with_indices_backward", "indices", "grad_output"},
    {"max_pool3d_with_indices_backward", "grad_output", "self", 3},
    {"max_pool3d_with_indices_backward", "indices", "grad_output"},
    {"adaptive_max_pool2d_backward", "grad_output", "self", 2},
    {"adaptive_max_pool2d_backward", "indices", "grad_output"},
    {"adaptive_max_pool3d_backward", "grad_output", "self", 3},
    {"adaptive_max_pool3d_backward", "indices", "grad_output"},
    {"fractional_max_pool2d_backward", "grad_output", "self", 2},
    {"fractional_max_pool2d_backward", "indices", "grad_output"},
    {"fractional_max_pool3d_backward", "grad_output", "self", 3},
    {"fractional_max_pool3d_backward", "indices", "grad_output"},
    {"reflection_pad1d_backward", "grad_output", "self", 1},
    {"reflection_pad2d_backward", "grad_output", "self", 2},
    {"reflection_pad3d_backward", "grad_output", "self", 3},
    {"replication_pad1d_backward", "grad_output", "self", 1},
    {"replication_pad2d_backward", "grad_output", "self", 2},
    {"replication_pad3d_backward", "grad_output", "self", 3},
};

// The kernel assumes that the argument is dense.
struct DenseRule {
  absl::string_view op;
  absl::string_view argument;
};

constexpr DenseRule kDense[] = {
    {"native_layer_norm_backward", "mean"},
    {"native_layer_norm_backward", "rstd"},
    {"_weight_norm_interface", "v"},
    {"_weight_norm_interface", "g"},
    {"_weight_norm_interface_backward", "grad_w"},
    {"native_group_norm", "weight"},
    {"native_group_norm", "bias"},
    {"native_group_norm_backward", "grad_out"},
    {"native_group_norm_backward", "input"},
    {"native_group_norm_backward", "mean"},
    {"native_group_norm_backward", "rstd"},
    {"native_group_norm_backward", "weight"},
    {"adaptive_max_pool2d_backward", "indices"},
    {"adaptive_max_pool3d_backward", "indices"},
    {"fractional_max_pool2d_backward", "indices"},
    {"fractional_max_pool3d_backward", "indices"},
    {"rrelu_with_noise", "noise"},
    {"rrelu_with_noise_", "noise"},
    {"rrelu_with_noise_functional", "noise"},
};

}  // namespace

absl::Status CheckSizes(absl::string_view name, const srg::TensorView& view,
                        absl::Span<const int64_t> sizes,
                        absl::string_view fits) {
  if (view.sizes.size() == sizes.size() &&
      std::equal(sizes.begin(), sizes.end(), view.sizes.begin(),
                 [](int64_t due, int64_t given) {
                   return due == kAnySize || due == given;
                 })) {
    return absl::OkStatus();
  }
  const std::string due =
      absl::StrJoin(sizes, ",", [](std::string* out, int64_t size) {
        absl::StrAppend(out, size == kAnySize ? "*" : absl::StrCat(size));
      });
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", name, " is ", srg::DescribeView(view),
                   ", must be [", due, "] to fit ", fits));
}

absl::Status CheckDense(absl::string_view name, const srg::TensorView& view) {
  // Compares the number of elements with the number of places from the first to
  // the last.
  const int64_t count = srg::ElementCount(view).value_or(0);
  int64_t extent = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    extent += (view.sizes[i] - 1) * view.strides[i];
  }
  if (count == 0 || extent >= count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "argument ", name, " is ", srg::DescribeView(view), " with strides [",
      absl::StrJoin(view.strides, ","), "], must not repeat elements"));
}

absl::Status CheckSizeTable(absl::string_view op,
                            const NamedArguments& arguments) {
  for (const SizeRule& rule : kSizes) {
    if (rule.op != op) continue;
    const std::optional<srg::TensorView> view = arguments.View(rule.argument);
    const std::optional<srg::TensorView> other = arguments.View(rule.other);
    if (!view.has_value() || !other.has_value()) continue;
    if (rule.free > 0 &&
        (other->sizes.size() <= rule.free ||
         std::find(other->sizes.end() - rule.free, other->sizes.end(), 0) !=
             other->sizes.end())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "argument ", rule.other, " is ", srg::DescribeView(*other),
          ", must have more than ", rule.free,
          " dimensions, the last of which are not empty"));
    }
    std::vector<int64_t> sizes(other->sizes.begin(), other->sizes.end());
    std::fill_n(sizes.rbegin(), rule.free, kAnySize);
    DJINN_RETURN_IF_ERROR(CheckSizes(
        rule.argument, *view, sizes,
        absl::StrCat("argument ", rule.other, " ", srg::DescribeView(*other))));
  }
  for (const DenseRule& rule : kDense) {
    if (rule.op != op) continue;
    const std::optional<srg::TensorView> view = arguments.View(rule.argument);
    if (view.has_value()) {
      DJINN_RETURN_IF_ERROR(CheckDense(rule.argument, *view));
    }
  }
  return absl::OkStatus();
}

std::string Describe(absl::string_view name, const srg::TensorView& view) {
  return absl::StrCat("argument ", name, " ", srg::DescribeView(view));
}

absl::Status Misfit(absl::string_view name, const srg::TensorView& view,
                    absl::string_view due) {
  return absl::InvalidArgumentError(absl::StrCat(
      "argument ", name, " is ", srg::DescribeView(view), ", must ", due));
}

absl::Status SameSizes(const NamedArguments& arguments, absl::string_view a,
                       absl::string_view b) {
  const View x = arguments.View(a);
  const View y = arguments.View(b);
  if (!x.has_value() || !y.has_value()) return absl::OkStatus();
  return CheckSizes(a, *x, y->sizes, Describe(b, *y));
}

}  // namespace djinn::worker
