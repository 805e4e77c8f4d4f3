// Lets operators on sparse tensors be sent to workers, which know strided
// tensors only. A sparse tensor crosses as its parts: strided tensors, with a
// list of integers that says how they belong together.
//
// For each of PyTorch's operators that has its own sparse kernel on each kind
// of device, namespace djinn_sparse has an operator that takes the parts of its
// tensors, builds them again, calls PyTorch's operator, and returns parts. The
// result therefore has the bits of PyTorch's own kernel. The operators check
// every index before a kernel uses it.
//
// All functions are thread-safe.
#ifndef COMMON_TORCH_SPARSE_OPERATORS_H_
#define COMMON_TORCH_SPARSE_OPERATORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/string_view.h"

namespace djinn {

// The namespace of the operators, with the colons.
inline constexpr absl::string_view kSparseNamespace = "djinn_sparse::";

// Defines the operators and their kernels for the CPU, CUDA devices and
// metadata, once per process. An operator is one of four kinds:
//
// * NAME(Tensor[] parts, int[] layout, ...) -> (Tensor, Tensor, Tensor, Tensor)
//   returns a tensor of any layout, which JoinResult() builds. Its sizes
//   depend on data.
// * NAME.strided(Tensor[] parts, int[] layout, ...) -> Tensor returns a strided
//   tensor whose sizes follow from the operands' sizes.
// * NAME(Tensor[] parts, int[] layout, ...) -> (Tensor, Tensor) returns two
//   strided tensors: the values of a result that is sparse, and no elements for
//   a result that is undefined.
// * NAME_(Tensor(a!) self, Tensor[] parts, int[] layout, ...) -> Tensor(a!)
//   writes a strided tensor, and does not copy it.
//
// The other arguments are those of PyTorch's operator that are not tensors, in
// its order. _sparse_mm_reduce_impl has one more: whether its second result
// says which element of the sparse operand each element of the first one came
// from.
void DefineSparseOperators();

// Appends the tensor's strided parts to `parts` and its description to
// `layout`. The tensor may be strided itself. `same_as` is the position of an
// earlier operand that is the same tensor: PyTorch's kernels treat `a + a`
// otherwise than `a + b`.
void AppendParts(const at::Tensor& tensor, std::vector<at::Tensor>* parts,
                 std::vector<int64_t>* layout,
                 std::optional<size_t> same_as = std::nullopt);

// Returns the tensor that the four results of an operator describe. Throws
// c10::Error if they do not belong together.
at::Tensor JoinResult(at::TensorList results);

}  // namespace djinn

#endif  // COMMON_TORCH_SPARSE_OPERATORS_H_
