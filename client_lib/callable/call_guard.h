// What decides whether a call of a registered callable is like an earlier one,
// but for the identity of its arguments' storages.
#ifndef CLIENT_LIB_CALLABLE_CALL_GUARD_H_
#define CLIENT_LIB_CALLABLE_CALL_GUARD_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace djinn::capture {

// Who wants to see every operator that this thread calls, so that none may be
// carried out unseen. Empty: nobody.
std::string FindCallInterceptor();

// Hooks of autograd's own node of the tensor, which see or change gradients
// that pass it: its grad_fn's, or those of the node that adds up a leaf's
// gradient. Not those of the tensor. A leaf is given none for it.
size_t CountNodeHooks(const at::Tensor& tensor);

// Equal for tensors of the same type, sizes, strides and so on, and of bases
// that are alike.
std::string GeometryOf(const at::TensorBase& tensor);

// Equal for calls that are alike: `key`, the thread's modes, the arguments'
// metadata, which of them share memory or are the same tensor, the parameters'
// identity, metadata and where they come from. Empty when an argument is no
// remote tensor, has names, or others have to see every call of it, and when a
// node of one has hooks, so that there is no such call.
std::string CallGuard(const std::string& key,
                      const std::vector<at::Tensor>& arguments,
                      const std::vector<at::Tensor>& parameters);

// Equal where these tensors' gradients are alike, and share memory with one
// another, with the arguments and with the parameters in the same way.
std::string GradientGuard(const std::vector<at::Tensor>& arguments,
                          const std::vector<at::Tensor>& parameters);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CALLABLE_CALL_GUARD_H_
