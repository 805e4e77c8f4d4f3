#include "gpu_worker/device/torch/optimizer_guards.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/structure.h"
#include "common/status_macros.h"
#include "gpu_worker/device/torch/guard_checks.h"
#include "gpu_worker/device/torch/size_table.h"

namespace djinn::worker {
namespace {

// One for each parameter, of its size.
constexpr absl::string_view kLists[] = {
    "self",        "grads",           "exp_avgs",
    "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list",
    "state_sums"};

constexpr absl::string_view kSteps = "state_steps";

bool IsOne(const srg::TensorView& view) {
  const auto elements = srg::ElementCount(view);
  return elements.ok() && *elements == 1;
}

// That the lists have an entry for each of `self`, all of one type, and what is
// read as one number is one.
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
    // Its type is not looked at.
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

// The kernel walks all lists by the parameters.
absl::Status CheckFusedOptimizer(const NamedArguments& arguments) {
  const std::vector<srg::TensorView> parameters = arguments.Views("self");
  for (const absl::string_view name : kLists) {
    const std::vector<srg::TensorView> views = arguments.Views(name);
    // Of lists' lengths the operator itself complains.
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
  // Not looked at otherwise.
  if (!arguments.Boolean("amsgrad").value_or(false)) return absl::OkStatus();
  return CheckLists(arguments, {"max_exp_avg_sqs"});
}

absl::Status CheckFusedSgdOnGpu(const NamedArguments& arguments) {
  DJINN_RETURN_IF_ERROR(CheckLists(arguments, {"self", "grads"}));
  // Empty without momentum.
  if (arguments.Views("momentum_buffer_list").empty()) return absl::OkStatus();
  return CheckLists(arguments, {"momentum_buffer_list"});
}

absl::Status CheckFusedAdagradOnGpu(const NamedArguments& arguments) {
  return CheckLists(arguments, {"self", "grads", "state_sums", kSteps});
}

}  // namespace djinn::worker
