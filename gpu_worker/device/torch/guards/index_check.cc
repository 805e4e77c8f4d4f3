#include "gpu_worker/device/torch/guards/index_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "ATen/ExpandUtils.h"
#include "ATen/core/List.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

bool IsMask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

bool IsIndex(const at::Tensor& tensor) {
  return tensor.defined() &&
         c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

// Returns each element once: reduces dimensions that repeat an element to size
// 1.
at::Tensor Distinct(const at::Tensor& tensor) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  bool repeats = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (tensor.stride(static_cast<int64_t>(d)) == 0 && sizes[d] > 1) {
      sizes[d] = 1;
      repeats = true;
    }
  }
  return repeats ? tensor.as_strided(sizes, tensor.strides(),
                                     tensor.storage_offset())
                 : tensor;
}

// Returns the least value that is allowed.
int64_t LowestOf(IndexLowest lowest, int64_t bound) {
  switch (lowest) {
    case IndexLowest::kZero:
      return 0;
    case IndexLowest::kFromEnd:
      return -bound;
    case IndexLowest::kAny:
      break;
  }
  return std::numeric_limits<int64_t>::min();
}

// Checks a tensor of the host in one pass.
bool AreWithin(const at::Tensor& indices, IndexLowest lowest, int64_t bound) {
  const auto [least, most] = indices.aminmax();
  return least.item<int64_t>() >= LowestOf(lowest, bound) &&
         most.item<int64_t>() < bound;
}

int64_t Product(at::IntArrayRef sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Returns the product of the last `count` sizes.
std::optional<int64_t> LastSizes(const at::Tensor& tensor, int64_t count) {
  if (tensor.dim() < count) return std::nullopt;
  return Product(tensor.sizes().slice(tensor.dim() - count));
}

// Returns the size along the dimension that the call names; nothing if the
// operator will report that dimension as wrong.
std::optional<int64_t> SizeAlong(const IndexArgument& argument,
                                 const torch::jit::Stack& stack,
                                 at::IntArrayRef sizes) {
  if (!argument.dim.has_value() || stack[*argument.dim].isNone()) {
    return Product(sizes);
  }
  // A tensor without dimensions counts as one with a dimension of size 1.
  if (sizes.empty()) return 1;
  const auto rank = static_cast<int64_t>(sizes.size());
  int64_t dim = stack[*argument.dim].toInt();
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank) return std::nullopt;
  return sizes[dim];
}

// Returns the bound that values must be below; nothing if there is none.
std::optional<int64_t> BoundOf(const IndexArgument& argument,
                               const torch::jit::Stack& stack) {
  const c10::IValue& of = stack[argument.of];
  switch (argument.rule.bound) {
    case IndexBound::kNumber: {
      // A negative number is no bound, but values must still not be negative.
      const int64_t number = of.toInt();
      return number < 0 ? std::numeric_limits<int64_t>::max() : number;
    }
    case IndexBound::kCount:
      return int64_t{1} << 31;
    case IndexBound::kSizes:
      return Product(of.toIntVector());
    case IndexBound::kAlongSizes: {
      const std::vector<int64_t> sizes = of.toIntVector();
      return SizeAlong(argument, stack, sizes);
    }
    default:
      break;
  }
  if (!of.isTensor() || !of.toTensor().defined()) return std::nullopt;
  const at::Tensor& tensor = of.toTensor();
  switch (argument.rule.bound) {
    case IndexBound::kAlong:
      return SizeAlong(argument, stack, tensor.sizes());
    case IndexBound::kRows:
      return tensor.dim() == 0 ? std::nullopt
                               : std::optional<int64_t>(tensor.size(0));
    case IndexBound::kAll:
      return tensor.numel();
    case IndexBound::kUpToAll:
      return tensor.numel() + 1;
    case IndexBound::kClasses:
      if (tensor.dim() == 0) return std::nullopt;
      return tensor.size(tensor.dim() == 1 ? 0 : 1);
    case IndexBound::kLast:
      return LastSizes(tensor, 1);
    case IndexBound::kPlane:
      return LastSizes(tensor, 2);
    case IndexBound::kSpace:
      return LastSizes(tensor, 3);
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::Status IndexOutOfRange(absl::string_view op,
                             absl::Span<const IndexArgument> arguments) {
  std::vector<absl::string_view> indices;
  for (const IndexArgument& argument : arguments) {
    if (argument.rule.bound == IndexBound::kUnit) {
      return MakeError(absl::StatusCode::kInvalidArgument, kOperatorFailed,
                       absl::StrCat("all elements of ", argument.rule.argument,
                                    " should be between 0 and 1, in ", op));
    }
    if (argument.rule.bound == IndexBound::kWeights) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, kOperatorFailed,
          absl::StrCat("probability tensor contains either `inf`, `nan` or "
                       "element < 0, or sums to 0, in ",
                       op));
    }
    if (argument.rule.bound == IndexBound::kMaskCount) {
      return MakeError(absl::StatusCode::kInvalidArgument, kOperatorFailed,
                       absl::StrCat("more elements are masked than the source "
                                    "has, in ",
                                    op));
    }
    if (argument.rule.bound == IndexBound::kUnknown) continue;
    if (argument.rule.bound == IndexBound::kNonzero) {
      return MakeError(absl::StatusCode::kInvalidArgument, kOperatorFailed,
                       absl::StrCat("an assertion failed, in ", op));
    }
    if (indices.empty() || indices.back() != argument.rule.argument) {
      indices.push_back(argument.rule.argument);
    }
  }
  return MakeError(absl::StatusCode::kInvalidArgument, kOperatorFailed,
                   absl::StrCat("index out of range in ", op, ", argument ",
                                absl::StrJoin(indices, " or ")));
}

absl::Status IndexCheck::Check(torch::jit::Stack* arguments) {
  for (const IndexArgument& argument : arguments_) {
    DJINN_RETURN_IF_ERROR(argument.rule.bound == IndexBound::kPositions
                              ? CheckPositions(argument, arguments)
                              : CheckArgument(argument, arguments));
  }
  return absl::OkStatus();
}

absl::Status IndexCheck::CheckArgument(const IndexArgument& argument,
                                       torch::jit::Stack* stack) {
  c10::IValue& value = (*stack)[argument.argument];
  if (argument.rule.bound == IndexBound::kUnknown) {
    value = c10::IValue();
    return absl::OkStatus();
  }
  if (!value.isTensor() || !value.toTensor().defined()) return absl::OkStatus();
  at::Tensor tensor = value.toTensor();
  if (argument.rule.bound == IndexBound::kUnit ||
      argument.rule.bound == IndexBound::kNonzero) {
    DJINN_RETURN_IF_ERROR(CheckValues(argument, &tensor));
  } else if (argument.rule.bound == IndexBound::kWeights) {
    DJINN_RETURN_IF_ERROR(CheckWeights(&tensor));
  } else if (argument.rule.bound == IndexBound::kAscending) {
    DJINN_RETURN_IF_ERROR(CheckAscending(&tensor));
  } else if (argument.rule.bound == IndexBound::kMaskCount) {
    const c10::IValue& of = (*stack)[argument.of];
    DJINN_RETURN_IF_ERROR(
        CheckMask((*stack)[0].toTensor(), of.toTensor(), &tensor));
  } else {
    // A tensor of another type holds no indices but, for example, probabilities
    // of classes.
    if (!IsIndex(tensor)) return absl::OkStatus();
    const std::optional<int64_t> bound = BoundOf(argument, *stack);
    if (!bound.has_value()) return absl::OkStatus();
    std::optional<int64_t> ignored;
    if (argument.ignored.has_value()) {
      ignored = (*stack)[*argument.ignored].toInt();
    }
    DJINN_RETURN_IF_ERROR(CheckIndices(argument, *bound, ignored, &tensor));
  }
  (*stack)[argument.argument] = c10::IValue(std::move(tensor));
  return absl::OkStatus();
}

absl::Status IndexCheck::CheckPositions(const IndexArgument& argument,
                                        torch::jit::Stack* stack) {
  const at::Tensor& self = (*stack)[argument.of].toTensor();
  c10::IValue& value = (*stack)[argument.argument];
  const bool optional = value.isOptionalTensorList();
  std::vector<std::optional<at::Tensor>> entries;
  if (optional) {
    entries = value.toOptionalTensorVector();
  } else {
    for (at::Tensor& tensor : value.toTensorVector()) {
      entries.emplace_back(std::move(tensor));
    }
  }
  int64_t dim = 0;
  for (std::optional<at::Tensor>& entry : entries) {
    if (!entry.has_value() || !entry->defined()) {
      ++dim;
      continue;
    }
    if (IsMask(*entry)) {
      // The operator itself compares the mask's sizes.
      dim += std::max<int64_t>(entry->dim(), 1);
      continue;
    }
    if (dim >= self.dim()) break;
    if (IsIndex(*entry)) {
      DJINN_RETURN_IF_ERROR(
          CheckIndices(argument, self.size(dim), std::nullopt, &*entry));
    }
    ++dim;
  }
  if (optional) {
    c10::List<std::optional<at::Tensor>> list;
    for (std::optional<at::Tensor>& entry : entries) {
      list.push_back(std::move(entry));
    }
    value = c10::IValue(std::move(list));
  } else {
    c10::List<at::Tensor> list;
    for (std::optional<at::Tensor>& entry : entries) {
      list.push_back(*std::move(entry));
    }
    value = c10::IValue(std::move(list));
  }
  return absl::OkStatus();
}

absl::Status IndexCheck::CheckIndices(const IndexArgument& argument,
                                      int64_t bound,
                                      std::optional<int64_t> ignored,
                                      at::Tensor* indices) {
  if (indices->numel() == 0) return absl::OkStatus();
  if (!flag_.defined() && AreWithin(*indices, argument.rule.lowest, bound)) {
    return absl::OkStatus();
  }
  // A narrow type may be unable to hold the bound. Then its indices must not be
  // compared with the bound before they are widened below.
  const at::Tensor distinct = Distinct(*indices);
  if (distinct.scalar_type() == at::kLong && bound > 0 &&
      !ignored.has_value() && argument.rule.lowest != IndexLowest::kAny) {
    // The common case uses as few kernels as possible, because launching a
    // kernel takes longer than executing it.
    const at::Tensor within =
        distinct.clamp(LowestOf(argument.rule.lowest, bound), bound - 1);
    DJINN_RETURN_IF_ERROR(Flag(within.ne(distinct)));
    *indices = within.expand(indices->sizes());
    return absl::OkStatus();
  }
  const at::Tensor wide = distinct.to(at::kLong);
  at::Tensor bad = wide.ge(bound);
  if (argument.rule.lowest != IndexLowest::kAny) {
    bad.logical_or_(wide.lt(LowestOf(argument.rule.lowest, bound)));
  }
  if (ignored.has_value()) bad.logical_and_(wide.ne(*ignored));
  int64_t harmless = 0;
  if (argument.rule.lowest == IndexLowest::kAny) {
    harmless = -1;
  } else if (bound == 0 && ignored.has_value()) {
    harmless = *ignored;
  } else if (bound == 0) {
    // An empty dimension has no element that could be read instead.
    return IndexOutOfRange("a dimension of no elements", {&argument, 1});
  }
  return Replace(bad, harmless, distinct, indices);
}

absl::Status IndexCheck::CheckValues(const IndexArgument& argument,
                                     at::Tensor* values) {
  if (values->numel() == 0) return absl::OkStatus();
  const at::Tensor distinct = Distinct(*values);
  if (argument.rule.bound == IndexBound::kNonzero) {
    return Replace(distinct.eq(0), 1, distinct, values);
  }
  if (!distinct.is_floating_point()) return absl::OkStatus();
  // NaNs are in no range.
  const at::Tensor good = distinct.ge(0).logical_and_(distinct.le(1));
  return Replace(good.logical_not(), 0, distinct, values);
}

absl::Status IndexCheck::CheckAscending(at::Tensor* values) {
  if (values->dim() != 1 || values->numel() < 2 || !IsIndex(*values)) {
    return absl::OkStatus();
  }
  const int64_t last = values->numel() - 1;
  DJINN_RETURN_IF_ERROR(
      Flag(values->narrow(0, 1, last).lt(values->narrow(0, 0, last))));
  // The result equals the values if they ascend.
  *values = std::get<0>(values->cummax(0));
  return absl::OkStatus();
}

absl::Status IndexCheck::CheckWeights(at::Tensor* rows) {
  if (rows->numel() == 0 || rows->dim() == 0 || rows->dim() > 2 ||
      !rows->is_floating_point()) {
    return absl::OkStatus();
  }
  const at::Tensor wide = rows->to(at::kDouble);
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor sums = wide.sum(-1, /*keepdim=*/true);
  // Every comparison with a NaN is false.
  const at::Tensor good = wide.ge(0)
                              .logical_and_(wide.lt(infinity))
                              .all(-1, /*keepdim=*/true)
                              .logical_and_(sums.gt(0));
  return Replace(good.logical_not().expand(rows->sizes()), 1, *rows, rows);
}

absl::Status IndexCheck::CheckMask(const at::Tensor& self,
                                   const at::Tensor& source, at::Tensor* mask) {
  if (!IsMask(*mask)) return absl::OkStatus();
  const at::Tensor count =
      mask->expand(at::infer_size(self.sizes(), mask->sizes()))
          .to(at::kBool)
          .sum();
  const at::Tensor bad = count.gt(source.numel());
  DJINN_RETURN_IF_ERROR(Flag(bad));
  *mask = mask->logical_and(bad.logical_not()).to(mask->scalar_type());
  return absl::OkStatus();
}

absl::Status IndexCheck::Flag(const at::Tensor& bad) {
  const at::Tensor any = bad.numel() == 1 ? bad.reshape({}) : bad.any();
  if (!flag_.defined() || any.device() != flag_.device()) {
    if (!any.item<bool>()) return absl::OkStatus();
    return IndexOutOfRange("a tensor of the host", arguments_);
  }
  flag_.logical_or_(any);
  return absl::OkStatus();
}

absl::Status IndexCheck::Replace(const at::Tensor& bad, int64_t harmless,
                                 const at::Tensor& distinct,
                                 at::Tensor* tensor) {
  DJINN_RETURN_IF_ERROR(Flag(bad));
  // A clone keeps the memory order of the elements, from which operators derive
  // the memory order of their results.
  *tensor =
      distinct.clone().masked_fill_(bad, harmless).expand(tensor->sizes());
  return absl::OkStatus();
}

}  // namespace djinn::worker
