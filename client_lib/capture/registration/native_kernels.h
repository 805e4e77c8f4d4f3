// Typed kernels: what makes tensors and views, moves bytes, or answers about a
// tensor, and so never becomes a node.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Registers them at PrivateUse1 and returns their names with overload
// ("aten::view", "aten::set_.source_Tensor").
std::set<std::string> RegisterNativeKernels(torch::Library* library);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
