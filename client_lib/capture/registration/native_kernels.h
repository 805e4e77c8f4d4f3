// Registers three kinds of kernels: those that never become a node of a graph,
// the kernels of composites that are captured whole, and those that split
// operators as the CPU does where PyTorch's own composites would split them
// otherwise. Each Register function that returns names returns the qualified
// names ("aten::set_.source_Tensor") that it registered.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <map>
#include <set>
#include <string>

#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/capture/registration/split_rule.h"

namespace djinn::capture {

// Runs before a composite that is captured whole, and splits the call if
// autograd, autocast or the CPU's choice of parts asks for it.
class SplitKernel : public c10::OperatorKernel {
 public:
  // `rule` lives for the rest of the process.
  explicit SplitKernel(const SplitRule* rule) : rule_(rule) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  const SplitRule* const rule_;
};

// Captures a composite whole, unless it has to be split although the call does
// not pass autograd.
class WholeKernel : public c10::OperatorKernel {
 public:
  // `info` and `rule` live for the rest of the process.
  WholeKernel(const OperatorInfo* info, const SplitRule* rule)
      : info_(info), rule_(rule) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  const OperatorInfo* const info_;
  const SplitRule* const rule_;
};

// Captures an operator on lists of tensors (`_foreach_*`). PyTorch's own loop
// over the lists, which CUDA devices use then, too, serves lists over several
// devices, scalars in a tensor on the CPU, and lists of different lengths,
// which it refuses.
class ListKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit ListKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack);

 private:
  const OperatorInfo* const info_;
};

// Captures an operator that PyTorch's symbolic zeros reach: a composite of
// others, or a product of vectors, which is a symbolic zero then.
class ZeroKernel : public c10::OperatorKernel {
 public:
  // `info` lives for the rest of the process.
  explicit ZeroKernel(const OperatorInfo* info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack);

 private:
  const OperatorInfo* const info_;
};

// Registers the typed kernels at PrivateUse1: those that create tensors and
// views, move bytes, or answer questions about a tensor.
std::set<std::string> RegisterNativeKernels(torch::Library* library);

// Registers `_fused_sdp_choice`, so that scaled dot product attention, where it
// is split, chooses between the fused kernel and the plain formula as the CPU
// does. The CPU chooses by the operands' metadata and by the program's
// settings.
std::set<std::string> RegisterAttentionChoice(torch::Library* library);

// Returns the splits, by name, of the recurrent networks that are otherwise
// captured whole. They split as the CPU does: for other devices, PyTorch's own
// composites compute other input products and fused cells.
//
// The CPU trains a float32 LSTM with oneDNN, whose workspace only the worker
// could know. The split's numbers are close to the CPU's, but their bits
// differ.
std::map<std::string, c10::KernelFunction> RecurrentSplits();

// Returns the splits, by name, of group normalization, which keeps
// channels-last tensors as they are on the CPU alone.
std::map<std::string, c10::KernelFunction> GroupNormSplits();

// Registers the derivative of `native_group_norm`. PyTorch's own formula asks
// whether tensors are on the CPU: on other devices, gradients of channels-last
// tensors are contiguous and have other bits.
void RegisterGroupNormDerivative(torch::Library* autograd);

// Registers, for both keys, the recurrent networks over packed sequences. They
// are always split, because the sequences' lengths are on the CPU.
std::set<std::string> RegisterPackedNetworks(torch::Library* backend,
                                             torch::Library* autograd);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_NATIVE_KERNELS_H_
