// Kernels that never become a node of a graph, and the splits of operators that
// PyTorch's own composites would split otherwise than on the CPU. Each function
// returns the qualified names ("aten::set_.source_Tensor") that it registered.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Registers the typed kernels at PrivateUse1. They create tensors and views,
// move bytes, or answer questions about a tensor.
std::set<std::string> RegisterNativeKernels(torch::Library* library);

// Registers `_fused_sdp_choice`, so that scaled dot product attention, where it
// is split, takes the fused kernel or the plain formula as on the CPU. The CPU
// chooses by the operands' metadata and by the program's settings.
std::set<std::string> RegisterAttentionChoice(torch::Library* library);

// Registers at AutogradPrivateUse1 the splits of the recurrent networks that
// are otherwise captured whole. They apply where a gradient or autocast needs
// the parts, and they are the CPU's: PyTorch's own composites compute other
// input products and fused cells if the device is not the CPU.
//
// The CPU trains a float32 LSTM with oneDNN, whose workspace only the worker
// could know. Its numbers are close to the CPU's, but not the same bits.
std::set<std::string> RegisterRecurrentSplits(torch::Library* autograd);

// Registers, for both keys, the recurrent networks over packed sequences. Their
// lengths are on the CPU, so they are always split.
std::set<std::string> RegisterPackedNetworks(torch::Library* backend,
                                             torch::Library* autograd);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
