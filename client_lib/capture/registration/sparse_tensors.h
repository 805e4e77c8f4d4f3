// Registers the kernels of sparse tensors on remote devices.
//
// A sparse tensor on a remote device is PyTorch's own sparse tensor, whose
// indices and values are strided remote tensors. Most of PyTorch's sparse
// kernels only call operators on these, and serve every device: the kernels
// registered here lead to them. Operators whose kernel reads the memory itself
// run on the worker: see common/torch/sparse_operators.h. Calls whose result's
// sizes depend on data wait for the worker. An operator that neither serves is
// refused by name.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_SPARSE_TENSORS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_SPARSE_TENSORS_H_

#include <torch/library.h>

#include <set>
#include <string>

namespace djinn::capture {

// Registers the kernels that make sparse tensors of strided ones at `backend`,
// the library of PrivateUse1, and returns their qualified names.
std::set<std::string> RegisterSparseConversions(torch::Library* backend);

// Registers the kernels at the keys of sparse tensors, and at these keys and at
// that of quantised tensors a fallback that refuses all other operators. Call
// it once.
void RegisterSparseTensors();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_SPARSE_TENSORS_H_
