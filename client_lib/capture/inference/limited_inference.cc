#include <algorithm>

#include "absl/base/optimization.h"
#include "client_lib/capture/inference/call_log.h"
#include "client_lib/capture/inference/shape_breaker.h"
#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/session/model/debug_flags.h"

namespace djinn::capture {
namespace {

using Outcome = InferredResults::Outcome;

// Returns whether inference of the operator can be given up. The worker is
// always asked about an operator with neither a rule nor a kernel to re-enter,
// and it cannot be asked about one that returns lists.
bool MayBeGivenUp(const OperatorInfo& info) {
  const bool tries =
      info.rule != nullptr || info.reentry != c10::DispatchKey::Undefined;
  const auto& lists = info.returns_list;
  return tries && std::find(lists.begin(), lists.end(), true) == lists.end();
}

// Returns whether an unknown shape is no failure of inference. The next call
// may have a known one, such as an index of integers after an index of masks.
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

void Log(const OperatorInfo& info, absl::string_view how,
         const InferredResults& inferred) {
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kShapeInference))) {
    LogShape(info, how, inferred);
  }
}

}  // namespace

InferredResults InferWithinLimits(const OperatorInfo& info,
                                  c10::ArrayRef<c10::IValue> arguments) {
  InferredResults inferred;
  if (!MayBeGivenUp(info)) {
    inferred = InferResults(info, arguments);
  } else {
    ShapeBreaker& breaker = ShapeBreaker::Global();
    if (breaker.IsOpen(info.operator_id)) {
      Log(info, "nothing: inference failed too often", inferred);
      return inferred;
    }
    breaker.Try(info.operator_id, info.name, [&] {
      inferred = InferResults(info, arguments);
      return inferred.outcome != Outcome::kUnknown || MayDependOnData(info);
    });
  }
  Log(info, HowFound(info, inferred.outcome != Outcome::kUnknown), inferred);
  return inferred;
}

}  // namespace djinn::capture
