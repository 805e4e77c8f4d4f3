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
    // Every result is a view of an operand. `views` holds the results, and no
    // operator is executed.
    kViews,
    // Only the worker can find the shapes. `results`, if not empty, says which
    // results are undefined.
    kUnknown,
    // Autocast casts what the operator calls on the CPU. The caller calls the
    // operator's composite, OperatorInfo::reentry, instead of executing the
    // operator, which a worker would do without casts. `results` describes what
    // the composite returns if the shapes were found.
    kCastParts,
  };
  Outcome outcome = Outcome::kUnknown;
  // The results in return order, with lists flattened.
  std::vector<ResultMeta> results;
  // The number of tensors in each return, in the order of returns: 1 for a
  // return that is not a list.
  std::vector<size_t> lengths;
  std::vector<c10::IValue> views;
};

// Infers the call's results, except results that are arguments which the
// operator writes. Throws c10::Error, as PyTorch would, if the call itself is
// wrong. Thread-safe; enters shape-only mode.
InferredResults InferResults(const OperatorInfo& info,
                             c10::ArrayRef<c10::IValue> arguments);

// Does the same as InferResults() for calls that will be executed, and logs at
// the debug level "shape_inference".
InferredResults InferAndLog(const OperatorInfo& info,
                            c10::ArrayRef<c10::IValue> arguments);

// Writes the log line of the debug level "interception".
void LogCall(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);
// Writes the log line of the debug level "shape_inference". `how` says how the
// shapes were found.
void LogShape(const OperatorInfo& info, absl::string_view how,
              const InferredResults& inferred);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_
