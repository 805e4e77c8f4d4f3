// Finds the metadata of a call's results without running it.
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn::capture {

struct InferredResults {
  enum class Outcome {
    // `results` says what comes back.
    kKnown,
    // Every result is a view of an operand: `views` are the results, and there
    // is nothing to run.
    kViews,
    // Only the worker can tell; `results`, if any, says which are undefined.
    kUnknown,
  };
  Outcome outcome = Outcome::kUnknown;
  // Flattened over lists, in return order.
  std::vector<ResultMeta> results;
  // Length of each list return, in return order; 1 for tensors.
  std::vector<size_t> lengths;
  std::vector<c10::IValue> views;
};

// Throws c10::Error when the call itself is wrong, as PyTorch would. No result
// is an argument the operator writes. Thread-safe; enters shape-only mode.
InferredResults InferResults(const OperatorInfo& info,
                             c10::ArrayRef<c10::IValue> arguments);

// As InferResults(), for calls that will be executed: respects the limits that
// djinn/debug.h describes, and logs at the debug level "shape_inference".
// Returns kUnknown for an operator whose inference was given up.
InferredResults InferWithinLimits(const OperatorInfo& info,
                                  c10::ArrayRef<c10::IValue> arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_INFERENCE_H_
