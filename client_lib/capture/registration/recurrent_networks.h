// Recurrent networks taken apart as the CPU takes them apart, for gradients,
// for autocast and for packed sequences. PyTorch's own composites go another
// way where the device is not the CPU: input products step by step, and fused
// cells that no CPU has.
//
// The CPU trains a float32 LSTM with oneDNN, whose workspace only the worker
// could know: there the numbers are nearly the CPU's, not its bits.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_RECURRENT_NETWORKS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_RECURRENT_NETWORKS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Those that are captured whole where neither a gradient nor autocast asks for
// their parts: registers in a library of namespace aten, for
// AutogradPrivateUse1, what splits them otherwise. Returns their qualified
// names.
std::set<std::string> RegisterRecurrentSplits(torch::Library* autograd);

// Those over packed sequences, whose lengths are on the CPU: always split.
// Registers them for both keys and returns their qualified names.
std::set<std::string> RegisterPackedNetworks(torch::Library* backend,
                                             torch::Library* autograd);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_RECURRENT_NETWORKS_H_
