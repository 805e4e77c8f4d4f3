// Computes guards: strings that are equal for calls of a registered callable
// that issue the same operators on the same metadata. The arguments' storages
// may differ.
#ifndef CLIENT_LIB_CALLABLE_CALL_GUARD_H_
#define CLIENT_LIB_CALLABLE_CALL_GUARD_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace djinn::capture {

// Returns a human-readable description of what must see every operator that
// this thread calls, such as a trace, or an empty string. While there is one,
// no call is replayed.
std::string FindCallInterceptor();

// Returns the number of hooks of the tensor's autograd node, which see or
// change gradients that pass it: its grad_fn, or the node that accumulates a
// leaf's gradient. Hooks of the tensor itself do not count. A leaf gets no node
// for this.
size_t CountNodeHooks(const at::Tensor& tensor);

// Returns a string that is equal for tensors of equal dtype, sizes, strides,
// offset and flags whose bases are equal in the same way.
std::string GeometryOf(const at::TensorBase& tensor);

// Returns the guard of a call: `key`, the thread's modes, the arguments'
// metadata, which of them share memory or are the same tensor, and the
// parameters' identity, metadata and autograd nodes. Returns an empty string if
// no equal call can exist: an argument is not a remote tensor, has names, is a
// wrapped tensor or carries a tangent, or the node of an argument or parameter
// has hooks.
std::string CallGuard(const std::string& key,
                      const std::vector<at::Tensor>& arguments,
                      const std::vector<at::Tensor>& parameters);

// Returns a string that is equal if the tensors' gradients have equal metadata
// and share memory with each other, the arguments and the parameters in the
// same way.
std::string GradientGuard(const std::vector<at::Tensor>& arguments,
                          const std::vector<at::Tensor>& parameters);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_CALL_GUARD_H_
