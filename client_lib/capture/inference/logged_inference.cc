#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/session/model/debug_flags.h"
#include "common/log/log.h"

namespace djinn::capture {
namespace {

// Returns whether the operator may have unknown shapes that are no failure of
// inference, because they depend on data. The shape of the next call may be
// known: an index of masks may be followed by an index of integers.
bool MayDependOnData(const OperatorInfo& info) {
  return info.rule != nullptr ||
         info.handle.hasTag(at::Tag::dynamic_output_shape);
}

absl::string_view HowFound(const OperatorInfo& info, bool found) {
  if (found) return info.rule != nullptr ? "rule" : "re-entry";
  if (MayDependOnData(info)) {
    return "nothing: the shape depends on data";
  }
  return info.reentry == c10::DispatchKey::Undefined
             ? "nothing: there is neither a rule nor a kernel to re-enter"
             : "nothing: there is no rule, and PyTorch's own function failed";
}

// The number of elements of a list that are logged.
constexpr size_t kMaxElements = 8;

std::string DescribeMeta(c10::ScalarType type, c10::IntArrayRef sizes) {
  return absl::StrCat(c10::toString(type), "[", absl::StrJoin(sizes, ","), "]");
}

std::string DescribeTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "None";
  std::string text = DescribeMeta(tensor.scalar_type(), tensor.sizes());
  if (!tensor.is_contiguous()) {
    absl::StrAppend(&text, " by strides ",
                    absl::StrJoin(tensor.strides(), ","));
  }
  if (!IsRemote(tensor)) absl::StrAppend(&text, " on ", tensor.device().str());
  return text;
}

std::string DescribeValue(const c10::IValue& value) {
  if (value.isTensor()) return DescribeTensor(value.toTensor());
  if (value.isList()) {
    const c10::ArrayRef<c10::IValue> elements = value.toListRef();
    std::string text = "[";
    for (size_t i = 0; i < elements.size() && i < kMaxElements; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", DescribeValue(elements[i]));
    }
    if (elements.size() > kMaxElements) {
      absl::StrAppend(&text, ", ... ", elements.size(), " in all");
    }
    return absl::StrCat(text, "]");
  }
  if (value.isGenerator()) return "generator";
  std::ostringstream text;
  text << value;
  return text.str();
}

// Returns the device of the first remote tensor or device argument, such as
// "remote_accelerator:0", or "" if there is none.
std::string DeviceOf(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && IsRemote(argument.toTensor())) {
      return argument.toTensor().device().str();
    }
    if (argument.isDevice()) return argument.toDevice().str();
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorList()) {
      if (IsRemote(tensor)) return tensor.device().str();
    }
  }
  return "";
}

std::string DescribeResults(const InferredResults& inferred) {
  switch (inferred.outcome) {
    case InferredResults::Outcome::kViews:
      return "views of the operands";
    case InferredResults::Outcome::kUnknown:
      return "unknown";
    case InferredResults::Outcome::kCastParts:
      return "those of its parts, which autocast casts";
    case InferredResults::Outcome::kKnown:
      break;
  }
  std::string text;
  for (const ResultMeta& meta : inferred.results) {
    absl::StrAppend(
        &text, text.empty() ? "" : ", ",
        meta.defined ? DescribeMeta(meta.dtype, meta.sizes) : "None");
  }
  return text;
}

}  // namespace

InferredResults InferAndLog(const OperatorInfo& info,
                            c10::ArrayRef<c10::IValue> arguments) {
  InferredResults inferred = InferResults(info, arguments);
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kShapeInference))) {
    const bool found = inferred.outcome != InferredResults::Outcome::kUnknown;
    LogShape(info, HowFound(info, found), inferred);
  }
  return inferred;
}

void LogCall(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  std::string text;
  for (const c10::IValue& argument : arguments) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", DescribeValue(argument));
  }
  log::Info("call", {{"lane", CurrentLane()},
                     {"op", info.name},
                     {"device", DeviceOf(arguments)},
                     {"arguments", text}});
}

void LogShape(const OperatorInfo& info, absl::string_view how,
              const InferredResults& inferred) {
  log::Info("shape", {{"lane", CurrentLane()},
                      {"op", info.name},
                      {"by", how},
                      {"results", DescribeResults(inferred)}});
}

}  // namespace djinn::capture
