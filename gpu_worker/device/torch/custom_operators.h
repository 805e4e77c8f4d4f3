// Loads operators that are not PyTorch's own from shared libraries, which
// register them with TORCH_LIBRARY.
//
// Their kernels run in the worker's process on operands that a client chose. A
// cluster operator who lists a library trusts its kernels to check them.
// library_guards.h checks for those of torchvision and torchaudio.
#ifndef GPU_WORKER_DEVICE_TORCH_CUSTOM_OPERATORS_H_
#define GPU_WORKER_DEVICE_TORCH_CUSTOM_OPERATORS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace djinn::worker {

struct CustomOperators {
  // Names with overload, such as "example::twice.out".
  std::set<std::string> names;
  // File names of the libraries, for error texts.
  std::vector<std::string> libraries;
};

// Loads the libraries, and Djinn's own operators on sparse tensors, for the
// life of the process. Returns InvalidArgument (BAD_OPERATOR_LIBRARY), which
// names the path, for a path that is not absolute, is no regular file, cannot
// be loaded, or registers no operators. An optional library that cannot be
// loaded is logged; one whose folder and file have the names of a library that
// is loaded already is left out. Call it before other threads use PyTorch.
absl::StatusOr<CustomOperators> LoadOperatorLibraries(
    const std::vector<std::string>& required,
    const std::vector<std::string>& optional = {});

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CUSTOM_OPERATORS_H_
