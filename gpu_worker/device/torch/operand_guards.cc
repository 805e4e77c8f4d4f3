#include "gpu_worker/device/torch/operand_guards.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/srg/structure.h"
#include "common/status_macros.h"

namespace djinn::worker {
namespace {

// A call's arguments by name.
class NamedArguments {
 public:
  NamedArguments(const c10::FunctionSchema& schema, const CallTemplate& call)
      : schema_(schema), call_(call) {}

  // The view of the tensor argument; null if there is none.
  const srg::TensorView* View(absl::string_view name) const {
    for (const Place& place : call_.places) {
      if (schema_.arguments()[place.argument].name() != name) continue;
      const auto* source = std::get_if<TensorSource>(&place.source);
      const auto* operand =
          source == nullptr ? nullptr : std::get_if<Operand>(source);
      if (operand != nullptr) return &operand->view;
    }
    return nullptr;
  }

  std::optional<bool> Boolean(absl::string_view name) const {
    for (size_t i = 0; i < call_.values.size(); ++i) {
      if (schema_.arguments()[i].name() == name && call_.values[i].isBool()) {
        return call_.values[i].toBool();
      }
    }
    return std::nullopt;
  }

 private:
  const c10::FunctionSchema& schema_;
  const CallTemplate& call_;
};

absl::Status SameSizes(const NamedArguments& arguments, absl::string_view a,
                       absl::string_view b) {
  const srg::TensorView* const x = arguments.View(a);
  const srg::TensorView* const y = arguments.View(b);
  if (x == nullptr || y == nullptr || x->sizes == y->sizes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", a, " is ", srg::DescribeView(*x), ", argument ",
                   b, " ", srg::DescribeView(*y)));
}

// Kernels index statistics by the input's channels.
absl::Status CheckBatchNorm(const NamedArguments& arguments, bool backward) {
  const srg::TensorView* const input = arguments.View("input");
  if (input == nullptr || input->sizes.size() < 2) {
    return absl::InvalidArgumentError("argument input has no channels");
  }
  const int64_t channels = input->sizes[1];
  for (const absl::string_view name :
       {"weight", "bias", "running_mean", "running_var"}) {
    const srg::TensorView* const view = arguments.View(name);
    if (view == nullptr) continue;
    if (view->sizes.size() != 1 || view->sizes[0] != channels) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", name, " is ", srg::DescribeView(*view),
                       ", the input has ", channels, " channels"));
    }
  }
  const bool training =
      arguments.Boolean(backward ? "train" : "training")
          .value_or(arguments.Boolean("update").value_or(false));
  if (!training && (arguments.View("running_mean") == nullptr ||
                    arguments.View("running_var") == nullptr)) {
    return absl::InvalidArgumentError("evaluation without running statistics");
  }
  if (!backward) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "grad_out", "input"));
  if (!training) return absl::OkStatus();
  const srg::TensorView* const spread = arguments.View("save_invstd");
  for (const srg::TensorView* const saved :
       {arguments.View("save_mean"),
        spread != nullptr ? spread : arguments.View("save_var")}) {
    if (saved == nullptr || saved->sizes.size() != 1 ||
        saved->sizes[0] != channels) {
      return absl::InvalidArgumentError(
          "the saved statistics do not fit the input");
    }
  }
  return absl::OkStatus();
}

// Grouped heads are counted by dividing by those of the keys.
absl::Status CheckAttention(const NamedArguments& arguments) {
  const srg::TensorView* const key = arguments.View("key");
  const srg::TensorView* const value = arguments.View("value");
  if (key == nullptr || value == nullptr || key->sizes.size() < 2 ||
      value->sizes.size() < 2) {
    return absl::OkStatus();  // the composite complains itself
  }
  if (key->sizes.end()[-2] != value->sizes.end()[-2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument key is ", srg::DescribeView(*key),
                     ", argument value ", srg::DescribeView(*value)));
  }
  if (!arguments.Boolean("enable_gqa").value_or(false)) return absl::OkStatus();
  for (const srg::TensorView* const view : {key, value}) {
    if (view->sizes.size() > 2 && view->sizes.end()[-3] == 0) {
      return absl::InvalidArgumentError("grouped queries without any key");
    }
  }
  return absl::OkStatus();
}

// The kernel walks keys and values by the query's batch and heads and by each
// other's rows, and along rows by single steps.
absl::Status CheckFusedAttention(const NamedArguments& arguments,
                                 bool backward) {
  const srg::TensorView* const query = arguments.View("query");
  const srg::TensorView* const key = arguments.View("key");
  if (query == nullptr || key == nullptr || query->sizes.size() != 4 ||
      key->sizes.size() != 4) {
    return absl::InvalidArgumentError("the operands are not heads of rows");
  }
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "key", "value"));
  const auto& heads = query->sizes;
  if (heads[0] != key->sizes[0] || heads[3] != key->sizes[3] ||
      key->sizes[1] == 0 || heads[1] % key->sizes[1] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument query is ", srg::DescribeView(*query),
                     ", argument key ", srg::DescribeView(*key)));
  }
  for (const absl::string_view name : {"query", "key", "value", "out"}) {
    const srg::TensorView* const view = arguments.View(name);
    if (view == nullptr || view->sizes.empty() || view->sizes.back() < 2 ||
        view->strides.back() == 1) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("rows of argument ", name,
                     " are not dense: ", srg::DescribeView(*view)));
  }
  if (!backward) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "grad_out", "query"));
  DJINN_RETURN_IF_ERROR(SameSizes(arguments, "out", "query"));
  const srg::TensorView* const sums = arguments.View("logsumexp");
  if (sums != nullptr &&
      (sums->sizes.size() != 3 || sums->sizes[0] != heads[0] ||
       sums->sizes[1] != heads[1] || sums->sizes[2] != heads[2])) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument logsumexp is ", srg::DescribeView(*sums),
                     ", argument query ", srg::DescribeView(*query)));
  }
  return absl::OkStatus();
}

// The kernel walks both by the input's images and channels.
absl::Status CheckAdaptivePooling(const NamedArguments& arguments,
                                  size_t rank) {
  const srg::TensorView* const grad = arguments.View("grad_output");
  const srg::TensorView* const self = arguments.View("self");
  if (grad == nullptr || self == nullptr) return absl::OkStatus();
  const auto& given = grad->sizes;
  const auto& input = self->sizes;
  if (given.size() == input.size() && input.size() > rank &&
      std::equal(input.begin(), input.end() - static_cast<int64_t>(rank),
                 given.begin())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("argument grad_output is ", srg::DescribeView(*grad),
                   ", argument self ", srg::DescribeView(*self)));
}

}  // namespace

absl::Status CheckOperands(const c10::FunctionSchema& schema,
                           const CallTemplate& call) {
  const NamedArguments arguments(schema, call);
  const absl::string_view name = schema.name();
  if (absl::StrContains(name, "native_batch_norm") ||
      absl::StrContains(name, "_batch_norm_with_update") ||
      name == "aten::batch_norm_backward") {
    return CheckBatchNorm(arguments, absl::StrContains(name, "backward"));
  }
  if (name == "aten::_softmax_backward_data" ||
      name == "aten::_log_softmax_backward_data") {
    return SameSizes(arguments, "grad_output", "output");
  }
  if (name == "aten::scaled_dot_product_attention") {
    return CheckAttention(arguments);
  }
  if (absl::StartsWith(name,
                       "aten::_scaled_dot_product_flash_attention_for_cpu")) {
    return CheckFusedAttention(arguments, absl::EndsWith(name, "_backward"));
  }
  if (absl::StartsWith(name, "aten::_adaptive_avg_pool2d_backward")) {
    return CheckAdaptivePooling(arguments, 2);
  }
  if (absl::StartsWith(name, "aten::_adaptive_avg_pool3d_backward")) {
    return CheckAdaptivePooling(arguments, 3);
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
