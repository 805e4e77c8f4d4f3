// InferResults() for calls that are carried out: within the limits that
// djinn/debug.h describes, and logged at the debug level "shape_inference".
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_LIMITED_INFERENCE_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_LIMITED_INFERENCE_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "client_lib/capture/inference/shape_inference.h"
#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// As InferResults(); unknown for an operator whose inference was given up.
InferredResults InferWithinLimits(const OperatorInfo& info,
                                  c10::ArrayRef<c10::IValue> arguments);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_LIMITED_INFERENCE_H_
