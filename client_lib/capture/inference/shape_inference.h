// Infers the metadata of a call's results without running it.
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn::capture {

struct InferredResults {
  enum class Outcome {
    // `results` describes every result.
    kKnown,
    // Every result is a view of an operand. `views` holds the results, and
    // there is nothing to run.
    kViews,
    // Only the worker knows. `results`, if not empty, says which results are
    // undefined.
    kUnknown,
  };
  Outcome outcome = Outcome::kUnknown;
  // The results in return order, with lists flattened.
  std::vector<ResultMeta> results;
  // The number of tensors of each return, in return order: 1 unless it is a
  // list.
  std::vector<size_t> lengths;
  std::vector<c10::IValue> views;
};

// Infers the results that are not arguments that the operator writes. Throws
// c10::Error, as PyTorch would, if the call itself is wrong. Thread-safe;
// enters shape-only mode.
InferredResults InferResults(const OperatorInfo& info,
                             c10::ArrayRef<c10::IValue> arguments);

// Infers as InferResults() does, for calls that will be executed: respects the
// limits that djinn/debug.h describes, and logs at the debug level
// "shape_inference". Returns kUnknown for an operator whose inference was given
// up.
InferredResults InferWithinLimits(const OperatorInfo& info,
                                  c10::ArrayRef<c10::IValue> arguments);

// Write the log lines of the debug levels "interception" and "shape_inference".
// `how` says how the shapes were found.
void LogCall(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);
void LogShape(const OperatorInfo& info, absl::string_view how,
              const InferredResults& inferred);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_
