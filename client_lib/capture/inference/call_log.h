// Writes the log lines of the debug levels "interception" and
// "shape_inference".
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_CALL_LOG_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_CALL_LOG_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "absl/strings/string_view.h"
#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

void LogCall(const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);

// `how` says how the shapes were found.
void LogShape(const OperatorInfo& info, absl::string_view how,
              const InferredResults& inferred);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_CALL_LOG_H_
