// What PyTorch's kernels refuse about the tensors they write, other than by
// shape, before they compute anything.
#ifndef CLIENT_LIB_CAPTURE_OPERATORS_OUTPUT_RULES_H_
#define CLIENT_LIB_CAPTURE_OPERATORS_OUTPUT_RULES_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace djinn::capture {

// What memory outputs may have in common with an input.
enum class Sharing : uint8_t { kAny, kAllOrNothing, kNothing };

struct OutputRules {
  // An output's elements must lie in different places.
  bool distinct_elements = false;
  // Per argument.
  std::vector<Sharing> sharing;
  // Element by element: an output that is an input as well keeps its size, and
  // overlaps are looked for before an output takes the result's.
  bool elementwise = false;
  // An output that is resized gets the strides of the functional form's result;
  // otherwise it is contiguous.
  bool laid_out = true;
  // An output has the very type of the result.
  bool exact_type = false;
  // In place, it computes in the type of what it writes.
  bool own_type = false;
  // The argument that says in which type it computes: by default that of an
  // output. -1: none.
  int type_argument = -1;
  // Writes truth values, to an output of bool or uint8.
  bool truth = false;
  // An output with as many elements as the result keeps its sizes.
  bool counts_elements = false;
  // In place, nothing happens to integers, or to what is not complex.
  bool leaves_integers = false;
  bool leaves_reals = false;
  // Integers are copied to an output, which then has its size already.
  bool copies_integers = false;
};

OutputRules OutputRulesOf(const c10::OperatorHandle& op);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_OPERATORS_OUTPUT_RULES_H_
