// What PyTorch's kernels refuse about the tensors they write, other than by
// shape, before they compute anything.
#ifndef CLIENT_LIB_CAPTURE_OUTPUT_RULES_H_
#define CLIENT_LIB_CAPTURE_OUTPUT_RULES_H_

#include <ATen/core/dispatch/Dispatcher.h>

namespace djinn::capture {

struct OutputRules {
  // An output must not overlap with itself, nor in part with an input.
  bool no_overlap = false;
  // Element by element: an output that is an input as well keeps its size.
  bool elementwise = false;
  // An output has the very type of the result.
  bool exact_type = false;
};

OutputRules OutputRulesOf(const c10::OperatorHandle& op);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OUTPUT_RULES_H_
