// Registers the kernels that run PyTorch's operators on packed weights on
// remote devices.
//
// A packed weight, such as that of a dynamically quantised layer, stays in this
// process, whatever device its module is moved to. The first call with a remote
// operand copies its parts to the operand's device, and later calls use the
// copy: see common/torch/packed_operators.h.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_PACKED_WEIGHTS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_PACKED_WEIGHTS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Registers the kernels, those of PyTorch's own namespace at `backend`, the
// library of PrivateUse1. Returns their qualified names. Call it once.
std::set<std::string> RegisterPackedWeights(torch::Library* backend);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_PACKED_WEIGHTS_H_
