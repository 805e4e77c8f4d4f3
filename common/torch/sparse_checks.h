// Checks what PyTorch's sparse kernels trust, before the operators of
// sparse_operators.h call them. The indices of sparse operands are checked
// there. All functions throw c10::Error, and are thread-safe.
#ifndef COMMON_TORCH_SPARSE_CHECKS_H_
#define COMMON_TORCH_SPARSE_CHECKS_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"

namespace djinn::sparse {

using Operands = std::vector<at::Tensor>;
// The arguments that are not tensors.
using OtherArguments = std::vector<c10::IValue>;

// Checks a call and prepares it.
using Prepare = void (*)(Operands* operands, OtherArguments* others);

// Takes the last argument, which PyTorch's operator does not have: whether its
// kernel is to return which element of the first operand each result came from.
// The kernel does so only for operands that require gradients.
void PrepareReducedProduct(Operands* operands, OtherArguments* others);

// Checks the sizes of the operands of a reduced product's gradient, and which
// elements its results came from.
void CheckReducedProductGradient(Operands* operands, OtherArguments* others);

// Throws unless each diagonal begins within the matrix.
void CheckDiagonals(Operands* operands, OtherArguments* others);

// Throws unless the operands are matrices: PyTorch's kernel leaves results of
// several right sides without values.
void CheckTriangular(Operands* operands, OtherArguments* others);

}  // namespace djinn::sparse

#endif  // COMMON_TORCH_SPARSE_CHECKS_H_
