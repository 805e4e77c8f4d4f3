// Rules for losses over classes and sequences, and their gradients.
#include <algorithm>
#include <vector>

#include "ATen/core/Reduction.h"
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::ScalarType;

ResultMeta Scalar(ScalarType dtype) { return Contiguous(dtype, {}); }

// Returns one loss for each sample, or a single loss if the losses are reduced
// or the target has no batch dimension.
ResultMeta PerSample(const at::Tensor& input, const at::Tensor& target,
                     int64_t reduction) {
  if (reduction != at::Reduction::None || target.dim() == 0) {
    return Scalar(input.scalar_type());
  }
  return Contiguous(input.scalar_type(), {target.size(0)});
}

// The input is (samples, classes) or (classes), with one class for each sample.
Results MultiMarginLoss(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& target = args.Tensor(1);
  TORCH_CHECK((input.dim() == 2 && input.size(1) != 0) ||
                  (input.dim() == 1 && input.size(0) != 0) || input.dim() == 0,
              "Expected non-empty vector or matrix with optional 0-dim batch "
              "size, but got: ",
              input.sizes());
  const int64_t samples = input.dim() == 2 ? input.size(0) : 1;
  TORCH_CHECK(target.dim() <= 1 && target.numel() == samples,
              "inconsistent target size, expected ", samples, " but got ",
              target.sizes());
  return {PerSample(input, target, args.Integer(5))};
}

// The target has a list of classes for each sample.
Results MultilabelMarginLoss(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& target = args.Tensor(1);
  const int64_t reduction = args.Integer(2);
  TORCH_CHECK(
      input.dim() <= 2 && target.dim() <= 2 && target.numel() == input.numel(),
      "inconsistent target size: ", target.sizes(),
      " for input of size: ", input.sizes());
  const bool one = reduction != at::Reduction::None || target.dim() <= 1;
  return {one ? Scalar(input.scalar_type())
              : Contiguous(input.scalar_type(), {input.size(0)}),
          Contiguous(input.scalar_type(), target.sizes())};
}

Results NllLoss2d(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& target = args.Tensor(1);
  TORCH_CHECK(input.dim() == 4 && target.dim() == 3,
              "only batches of spatial targets and inputs supported");
  TORCH_CHECK(input.size(0) == target.size(0) &&
                  input.size(2) == target.size(1) &&
                  input.size(3) == target.size(2),
              "size mismatch (got input: ", input.sizes(),
              ", target: ", target.sizes(), ")");
  const bool one = args.Integer(3) != at::Reduction::None;
  return {one ? Scalar(input.scalar_type())
              : Contiguous(input.scalar_type(), target.sizes()),
          Scalar(input.scalar_type())};
}

// Returns the gradient of the second argument, which is contiguous.
Results ContiguousGradient(const CallArguments& args) {
  return {Contiguous(args.Tensor(1).scalar_type(), args.Tensor(1).sizes())};
}

// The lengths are integers in this overload. In the other overload they are
// tensors, and the shape depends on their values.
Results CtcLoss(const CallArguments& args) {
  const at::Tensor& log_probabilities = args.Tensor(0);
  const DimVector input_lengths = args.Integers(2);
  const DimVector target_lengths = args.Integers(3);
  const bool batched = log_probabilities.dim() == 3;
  TORCH_CHECK(batched || log_probabilities.dim() == 2,
              "ctc_loss: log_probs must be 2-D or 3-D");
  const int64_t batch = batched ? log_probabilities.size(1) : 1;
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == batch &&
                  static_cast<int64_t>(target_lengths.size()) == batch,
              "input_lengths and target_lengths must be of size batch_size");
  int64_t longest = 0;
  for (int64_t length : target_lengths) longest = std::max(longest, length);
  const ScalarType dtype = log_probabilities.scalar_type();
  return {
      Contiguous(dtype, {batch}),
      Contiguous(dtype, {batch, log_probabilities.size(0), 2 * longest + 1})};
}

// The kernel first computes the gradient as the product of target and
// exp(-target * self), and then updates it in place.
Results SoftMarginLossBackward(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(1);
  const at::Tensor& target = args.Tensor(2);
  CheckSameType("soft_margin_loss", {self, target});
  const ScalarType dtype = self.scalar_type();
  const ResultMeta negated = Elementwise(dtype, {Describe(target)});
  const ResultMeta power = Elementwise(dtype, {negated, Describe(self)});
  return {Elementwise(dtype, {Describe(target), power})};
}

// The kernel writes contiguous gradients only.
Results NllLoss2dBackward(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(1);
  const ResultMeta gradient = EmptyLike(self.scalar_type(), self);
  TORCH_CHECK(IsContiguous(gradient), "grad_input must be contiguous");
  return {gradient};
}

}  // namespace

void AddLossRules(RuleTable* table) {
  table->Add({"aten::multi_margin_loss"}, MultiMarginLoss);
  table->Add({"aten::multilabel_margin_loss_forward"}, MultilabelMarginLoss);
  table->Add({"aten::nll_loss2d_forward"}, NllLoss2d);
  table->Add({"aten::_ctc_loss"}, CtcLoss);
  table->Add({"aten::nll_loss2d_backward"}, NllLoss2dBackward);
  table->Add({"aten::soft_margin_loss_backward"}, SoftMarginLossBackward);
  table->Add(
      {"aten::multi_margin_loss_backward",
       "aten::multilabel_margin_loss_backward", "aten::_ctc_loss_backward",
       "aten::_ctc_loss_backward.Tensor", "aten::glu_backward"},
      ContiguousGradient);
}

}  // namespace djinn
