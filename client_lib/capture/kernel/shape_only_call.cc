#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/device/shape_only.h"
#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/operators/boxed_call.h"
#include "client_lib/capture/outputs/written_outputs.h"

namespace djinn::capture {
namespace {

using Outcome = InferredResults::Outcome;

// Returns whether the call reads at least one tensor and all of them are empty.
bool AllEmpty(const OperatorInfo& info, Arguments arguments) {
  bool any = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.arguments[i].is_out || !arguments[i].isTensor()) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    if (!tensor.defined()) continue;
    if (tensor.numel() != 0) return false;
    any = true;
  }
  return any;
}

// Sizes the empty outputs that a composite passes to an out= kernel. A
// structured meta function has already sized its own outputs.
void SizeOutputs(const OperatorInfo& info, Arguments arguments) {
  if (ShapeOnlyScope::Structured()) return;
  std::vector<at::Tensor> outputs;
  bool unsized = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.arguments[i].is_out || !arguments[i].isTensor()) continue;
    outputs.push_back(arguments[i].toTensor());
    unsized |= outputs.back().sizes() == c10::IntArrayRef({0});
  }
  if (!unsized) return;
  thread_local std::vector<const OperatorInfo*> asking;
  if (info.functional == nullptr || absl::c_linear_search(asking, &info)) {
    // The functional form is the composite whose shape is being inferred, so it
    // cannot give the shape. If all operands are empty, the output is probably
    // empty; the worker checks the shape.
    if (!AllEmpty(info, arguments)) throw NoShape(info.name);
    return;
  }
  asking.push_back(&info);
  const absl::Cleanup done = [] { asking.pop_back(); };
  const InferredResults inferred =
      InferResults(*info.functional, FunctionalArguments(info, arguments));
  const bool known = inferred.outcome == Outcome::kKnown ||
                     inferred.outcome == Outcome::kCastParts;
  if (!known || inferred.results.size() != outputs.size()) {
    throw NoShape(info.name);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ResultMeta& result = inferred.results[i];
    if (!result.defined) continue;
    outputs[i].resize_(result.sizes);
    outputs[i].unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes,
                                                            result.strides);
  }
}

// Checks an in-place step of a composite, such as adding a mask.
void CheckStepInPlace(const OperatorInfo& info, Arguments arguments) {
  if (info.is_out || info.functional == nullptr ||
      !info.output_rules.elementwise || !arguments[0].isTensor()) {
    return;
  }
  const InferredResults inferred =
      InferResults(*info.functional, FunctionalArguments(info, arguments));
  if (inferred.outcome == Outcome::kKnown && inferred.results.size() == 1) {
    CheckInPlace(info, arguments[0].toTensor(), inferred.results[0]);
  }
}

}  // namespace

void ShapeOnlyCall(const OperatorInfo& info, torch::jit::Stack* stack) {
  CastWatch::NoteCall();
  const size_t count = info.arguments.size();
  const Arguments arguments = ArgumentsOf(info, *stack);
  if (info.writes && !info.fresh_results) {
    SizeOutputs(info, arguments);
    CheckStepInPlace(info, arguments);
    Replace(stack, count, ReturnedArguments(info, arguments));
    return;
  }
  const InferredResults inferred = InferResults(info, arguments);
  switch (inferred.outcome) {
    case Outcome::kUnknown:
      throw NoShape(info.name);
    case Outcome::kViews:
      Replace(stack, count, inferred.views);
      return;
    case Outcome::kCastParts:
      if (inferred.results.empty()) throw NoShape(info.name);
      break;
    case Outcome::kKnown:
      break;
  }
  std::vector<at::Tensor> tensors;
  for (const ResultMeta& meta : inferred.results) {
    tensors.push_back(meta.defined ? NewRemoteTensor(nullptr, meta.sizes,
                                                     meta.strides, meta.dtype)
                                   : at::Tensor());
  }
  Replace(stack, count,
          PackReturns(info, inferred.lengths, std::move(tensors)));
}

}  // namespace djinn::capture
