// Operators that are not PyTorch's own: those that shared libraries, which the
// worker's operator listed, register with TORCH_LIBRARY.
//
// Their kernels run in the worker's process on operands that a client chose:
// whoever lists a library trusts it to check them.
#ifndef GPU_WORKER_DEVICE_TORCH_CUSTOM_OPERATORS_H_
#define GPU_WORKER_DEVICE_TORCH_CUSTOM_OPERATORS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace djinn::worker {

struct CustomOperators {
  // "example::twice.out".
  std::set<std::string> names;
  // File names of the libraries, for error texts.
  std::vector<std::string> libraries;
};

// Loads the libraries, for good. InvalidArgument (BAD_OPERATOR_LIBRARY) names
// the path: not absolute, no regular file, not loadable, or without operators.
// To be called before other threads use PyTorch.
absl::StatusOr<CustomOperators> LoadOperatorLibraries(
    const std::vector<std::string>& paths);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CUSTOM_OPERATORS_H_
