// Computes guards: strings that are equal for calls of a registered callable
// that issue the same operators on the same metadata. The arguments' storages
// may differ. RegisteredCallable (djinn/compile.h, registered_callable.cc)
// compares the guard of a call with those of its captured graphs.
#ifndef CLIENT_LIB_CALLABLE_CALL_GUARD_H_
#define CLIENT_LIB_CALLABLE_CALL_GUARD_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace djinn::capture {

// Returns a human-readable description of whatever must see every operator that
// this thread calls, such as a trace, or an empty string if nothing must. No
// call is replayed unless the string is empty.
std::string FindCallInterceptor();

// Returns the number of hooks of the tensor's autograd node: its grad_fn or,
// for a leaf, the node that accumulates its gradient. Such hooks see or change
// the gradients that pass the node. Hooks of the tensor itself do not count.
// The function does not create a node for a leaf.
size_t CountNodeHooks(const at::Tensor& tensor);

// Returns a string that is equal for two tensors if their dtypes, sizes,
// strides, offsets and flags are equal, and if the tensors that they are views
// of are equal in the same respects.
std::string GeometryOf(const at::TensorBase& tensor);

// Returns the guard of a call: `key`, the thread's modes, the arguments'
// metadata, which of them share memory or are the same tensor, and the
// parameters' identity, metadata and autograd nodes. Returns an empty string if
// no equal call can exist: an argument is not a remote tensor, has names, is a
// wrapped tensor or carries a tangent, or an argument's or parameter's autograd
// node has hooks.
std::string CallGuard(const std::string& key,
                      const std::vector<at::Tensor>& arguments,
                      const std::vector<at::Tensor>& parameters);

// Returns a string that is equal for two calls if the gradients of their
// tensors have equal metadata, and if the same gradients share memory with each
// other, with arguments and with parameters.
std::string GradientGuard(const std::vector<at::Tensor>& arguments,
                          const std::vector<at::Tensor>& parameters);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_CALL_GUARD_H_
