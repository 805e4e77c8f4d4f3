#include "gpu_worker/device/torch/guards/fused_guards.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ExpandUtils.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/torch/guards/size_table.h"

namespace djinn::worker {
namespace {

// The kernel writes dense rows into a result with the query's layout. If
// another dimension of the query has stride 1, as its columns do, the result's
// rows are not dense, and the kernel leaves some of its elements unwritten.
absl::Status CheckQueryLayout(const View& query) {
  if (query->sizes.size() != 4 || query->sizes.back() < 2 ||
      query->strides.back() != 1) {
    return absl::OkStatus();  // not executed by that kernel
  }
  if (at::infer_dense_strides(query->sizes, query->strides).back() == 1) {
    return absl::OkStatus();
  }
  return Misfit("query", *query, "not have columns that lie in one another");
}

// The kernel steps through keys and values by the query's batch and heads and
// by each other's rows, and assumes stride 1 within rows.
absl::Status CheckFusedAttention(const NamedArguments& arguments,
                                 bool backward) {
  const View query = arguments.View("query");
  const View key = arguments.View("key");
  if (!query.has_value() || !key.has_value() || query->sizes.size() != 4 ||
      key->sizes.size() != 4) {
    return absl::InvalidArgumentError("the operands are not heads of rows");
  }
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "key", "value"));
  const auto& heads = query->sizes;
  if (heads[2] == 0 || key->sizes[2] == 0 || heads[0] != key->sizes[0] ||
      heads[3] != key->sizes[3] || key->sizes[1] == 0 ||
      heads[1] % key->sizes[1] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument query is ", srg::DescribeView(*query),
                     ", argument key ", srg::DescribeView(*key)));
  }
  for (const absl::string_view name : {"query", "key", "value", "out"}) {
    const View view = arguments.View(name);
    if (!view.has_value() || view->sizes.empty() || view->sizes.back() < 2 ||
        view->strides.back() == 1) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("rows of argument ", name,
                     " are not dense: ", srg::DescribeView(*view)));
  }
  for (const absl::string_view name : {"key", "value", "grad_out", "out"}) {
    const View view = arguments.View(name);
    if (!view.has_value() || view->data_type == query->data_type) continue;
    return Misfit(
        name, *view,
        absl::StrCat("be of the type of ", Describe("query", *query)));
  }
  if (!backward) return CheckQueryLayout(query);
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "grad_out", "query"));
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "out", "query"));
  const View sums = arguments.View("logsumexp");
  const srg::DataType sum_type = query->data_type == srg::DataType::kFloat64
                                     ? srg::DataType::kFloat64
                                     : srg::DataType::kFloat32;
  if (sums.has_value() && sums->data_type != sum_type) {
    return Misfit("logsumexp", *sums, "be of the type that sums are taken in");
  }
  if (sums.has_value() &&
      (sums->sizes.size() != 3 || sums->sizes[0] != heads[0] ||
       sums->sizes[1] != heads[1] || sums->sizes[2] != heads[2])) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument logsumexp is ", srg::DescribeView(*sums),
                     ", argument query ", srg::DescribeView(*query)));
  }
  return absl::OkStatus();
}

// Names of the tensor lists that hold one tensor per parameter, of that
// parameter's size.
constexpr absl::string_view kLists[] = {
    "self",        "grads",           "exp_avgs",
    "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list",
    "state_sums"};

constexpr absl::string_view kSteps = "state_steps";

bool IsOne(const srg::TensorView& view) {
  const auto elements = srg::ElementCount(view);
  return elements.ok() && *elements == 1;
}

// Checks that the lists have an entry for each of `self`, all of one type, and
// that tensors that are read as one number have one element.
absl::Status CheckLists(const NamedArguments& arguments,
                        absl::Span<const absl::string_view> lists) {
  const std::vector<srg::TensorView> parameters = arguments.Views("self");
  if (parameters.empty()) {
    return absl::InvalidArgumentError("argument self has no entries");
  }
  for (const absl::string_view name : lists) {
    const std::vector<srg::TensorView> views = arguments.Views(name);
    if (views.size() != parameters.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "argument ", name, " has ", views.size(),
          " entries, must have as many as self: ", parameters.size()));
    }
    for (size_t i = 0; name != kSteps && i < views.size(); ++i) {
      if (views[i].data_type == parameters[0].data_type) continue;
      return Misfit(absl::StrCat(name, "[", i, "]"), views[i],
                    "be of the type of self[0]");
    }
  }
  const std::vector<srg::TensorView> steps = arguments.Views(kSteps);
  for (size_t i = 0; i < steps.size(); ++i) {
    // The kernel does not check the type.
    if (IsOne(steps[i]) && steps[i].data_type == srg::DataType::kFloat32) {
      continue;
    }
    return Misfit(absl::StrCat(kSteps, "[", i, "]"), steps[i],
                  "be one float32");
  }
  for (const absl::string_view name : {"lr", "grad_scale", "found_inf"}) {
    const View view = arguments.View(name);
    if (view.has_value() && !IsOne(*view)) {
      return Misfit(name, *view, "be one number");
    }
  }
  return absl::OkStatus();
}

}  // namespace

// The kernel divides by the number of the keys' heads if heads are grouped.
absl::Status CheckAttention(const NamedArguments& arguments) {
  // The run decides whether that kernel executes the call.
  if (const View query = arguments.View("query")) {
    DJINN_RETURN_IF_ERROR(CheckQueryLayout(query));
  }
  const View key = arguments.View("key");
  const View value = arguments.View("value");
  if (!key.has_value() || !value.has_value() || key->sizes.size() < 2 ||
      value->sizes.size() < 2) {
    return absl::OkStatus();  // the composite reports the error itself
  }
  if (key->sizes.end()[-2] != value->sizes.end()[-2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument key is ", srg::DescribeView(*key),
                     ", argument value ", srg::DescribeView(*value)));
  }
  if (!arguments.Boolean("enable_gqa").value_or(false)) return absl::OkStatus();
  for (const View& view : {key, value}) {
    if (view->sizes.size() > 2 && view->sizes.end()[-3] == 0) {
      return absl::InvalidArgumentError("grouped queries without any key");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFusedAttentionForward(const NamedArguments& arguments) {
  return CheckFusedAttention(arguments, false);
}

absl::Status CheckFusedAttentionBackward(const NamedArguments& arguments) {
  return CheckFusedAttention(arguments, true);
}

// The kernels divide by the number of heads before they check it.
absl::Status CheckHeads(const NamedArguments& arguments) {
  for (const absl::string_view name : {"num_head", "num_heads"}) {
    const auto heads = arguments.Integer(name);
    if (heads.has_value() && *heads < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", name, " is ", *heads, ", must be above 0"));
    }
  }
  return absl::OkStatus();
}

// A GPU's kernel loads four elements of the bias at once, from the first on.
absl::Status CheckHeadsOnGpu(const NamedArguments& arguments) {
  constexpr int64_t kLoaded = 16;  // bytes
  const View bias = arguments.View("qkv_bias");
  if (!bias.has_value() || bias->sizes.empty()) return absl::OkStatus();
  if ((bias->sizes[0] > 1 && bias->strides[0] != 1) ||
      bias->storage_offset * srg::ElementSize(bias->data_type) % kLoaded != 0) {
    return Misfit("qkv_bias", *bias,
                  "be dense and begin at 16 bytes of its storage");
  }
  return absl::OkStatus();
}

// The kernel steps through all lists by the parameters' sizes.
absl::Status CheckFusedOptimizer(const NamedArguments& arguments) {
  const std::vector<srg::TensorView> parameters = arguments.Views("self");
  for (const absl::string_view name : kLists) {
    const std::vector<srg::TensorView> views = arguments.Views(name);
    // The operator itself checks the lengths of lists.
    for (size_t i = 0; i < std::min(views.size(), parameters.size()); ++i) {
      const std::string entry = absl::StrCat(name, "[", i, "]");
      DJINN_RETURN_IF_ERROR(
          CheckSizes(entry, views[i], parameters[i].sizes,
                     Describe(absl::StrCat("self[", i, "]"), parameters[i])));
      DJINN_RETURN_IF_ERROR(CheckDense(entry, views[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFusedAdamOnGpu(const NamedArguments& arguments) {
  DJINN_RETURN_IF_ERROR(CheckLists(
      arguments, {"self", "grads", "exp_avgs", "exp_avg_sqs", kSteps}));
  // The kernel uses the list only with amsgrad.
  if (!arguments.Boolean("amsgrad").value_or(false)) return absl::OkStatus();
  return CheckLists(arguments, {"max_exp_avg_sqs"});
}

absl::Status CheckFusedSgdOnGpu(const NamedArguments& arguments) {
  DJINN_RETURN_IF_ERROR(CheckLists(arguments, {"self", "grads"}));
  // The list is empty without momentum.
  if (arguments.Views("momentum_buffer_list").empty()) return absl::OkStatus();
  return CheckLists(arguments, {"momentum_buffer_list"});
}

absl::Status CheckFusedAdagradOnGpu(const NamedArguments& arguments) {
  return CheckLists(arguments, {"self", "grads", "state_sums", kSteps});
}

}  // namespace djinn::worker
