// Lets a program keep and restore the state of a generator on a worker without
// reading it, as the recomputation of a checkpointed layer does. Namespace
// djinn_random has two operators:
//
//   state(Tensor like, *, Generator? generator, int bytes) -> Tensor
//       Returns the state: that number of bytes, on the device of `like`.
//   set_state(Tensor state, *, Generator? generator) -> Tensor
//       Lets the generator continue from the state, and returns a tensor
//       without elements.
//
// All functions are thread-safe.
#ifndef COMMON_TORCH_GENERATOR_OPERATORS_H_
#define COMMON_TORCH_GENERATOR_OPERATORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn {

// The namespace of the operators, with the colons.
inline constexpr absl::string_view kRandomNamespace = "djinn_random::";

// Defines the operators and their kernels for the CPU, CUDA devices and
// metadata, once per process. set_state() refuses a state in which no generator
// can be.
void DefineGeneratorOperators();

// Returns InvalidArgument (INVALID_GENERATOR) unless a generator of PyTorch's
// for the CPU can be in the state that the bytes describe. PyTorch's own check
// accepts states with which the next draws read beyond the twister's words.
absl::Status CheckCpuGeneratorState(absl::string_view bytes);

}  // namespace djinn

#endif  // COMMON_TORCH_GENERATOR_OPERATORS_H_
