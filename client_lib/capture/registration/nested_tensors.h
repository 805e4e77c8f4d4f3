// Registers the kernels of the nested tensors that a transformer's encoder
// makes of a padded batch.
//
// Such an encoder, while it evaluates a batch with a padding mask, computes the
// tokens without the padding, and pads the result with zeros. Its nested tensor
// is PyTorch's own, whose elements are one strided remote tensor and whose
// sizes are on the CPU. PyTorch's kernels for the CPU only call operators on
// the elements, so they serve remote devices with the CPU's bits. Other
// operators on nested tensors are refused.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_NESTED_TENSORS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_NESTED_TENSORS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Registers the kernels that make nested tensors of strided ones at `backend`,
// the library of PrivateUse1, and returns their qualified names.
std::set<std::string> RegisterNestedConversions(torch::Library* backend);

// Registers the kernels at the key of nested tensors. Call it once.
void RegisterNestedTensors();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_NESTED_TENSORS_H_
