// The conditions, other than shapes, that PyTorch's kernels require of the
// tensors that they write.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_OUTPUT_RULES_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_OUTPUT_RULES_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace djinn::capture {

// Says how much memory an output may share with an input.
enum class Sharing : uint8_t { kAny, kAllOrNothing, kNothing };

struct OutputRules {
  // True if an output's elements must be at distinct addresses.
  bool distinct_elements = false;
  // The rule for each argument.
  std::vector<Sharing> sharing;
  // True if the operator is elementwise. An output that is also an input then
  // keeps its size, and overlaps are checked before an output is resized.
  bool elementwise = false;
  // True if a resized output gets the strides of the functional form's result.
  // Otherwise it becomes contiguous.
  bool laid_out = true;
  // True if an output must have exactly the result's dtype.
  bool exact_type = false;
  // True if the in-place form computes in the dtype of the written tensor.
  bool own_type = false;
  // The position of the argument that names the dtype to compute in, or -1. If
  // the argument is None, the kernel computes in the output's dtype.
  int type_argument = -1;
  // True if it writes booleans, to an output of dtype bool or uint8.
  bool truth = false;
  // True if an output with as many elements as the result keeps its sizes.
  bool counts_elements = false;
  // True if the in-place form leaves integers, or real numbers, unchanged.
  bool leaves_integers = false;
  bool leaves_reals = false;
  // True if integers are copied to an output, which then already has its size.
  bool copies_integers = false;
};

OutputRules OutputRulesOf(const c10::OperatorHandle& op);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_OUTPUT_RULES_H_
