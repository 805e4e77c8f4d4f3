// Converts and checks the indices of sparse tensors whose parts are remote,
// with operators that check their own operands.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_SPARSE_INDICES_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_SPARSE_INDICES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace djinn::capture {

// Returns the first position of each row, and the end, from sorted row numbers.
// PyTorch's own kernel trusts its operand.
at::Tensor CompressIndices(const at::Tensor& self, int64_t size,
                           bool out_int32);

// Returns the coordinates of the elements of a compressed tensor, one row for
// each dimension. PyTorch's own kernel trusts its operands.
at::Tensor UncompressIndices(const at::Tensor& compressed,
                             const at::Tensor& plain, bool out_int32,
                             bool transpose);

// Checks indices in this process, which waits for them. PyTorch calls this only
// if the program asks for checks.
void ValidateCompressedIndices(bool is_crow, const at::Tensor& compressed,
                               const at::Tensor& plain, int64_t size,
                               int64_t plain_size, int64_t count);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_SPARSE_INDICES_H_
