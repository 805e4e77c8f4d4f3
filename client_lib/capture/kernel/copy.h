// Copies between a remote device and everything else.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_COPY_H_
#define CLIENT_LIB_CAPTURE_KERNEL_COPY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace djinn::capture {

// aten::copy_ among the process' operators.
uint32_t CopyOperatorId();

// CPU to remote, with conversion of dtype and broadcasting as copy_ does.
// Whole storages move as one upload; parts go through a temporary.
void CopyToRemote(const at::Tensor& source, const at::Tensor& destination);

// Remote to CPU; waits for the value. Only the view's own bytes move.
void CopyToCpu(const at::Tensor& source, const at::Tensor& destination);

// Any of these, or remote to remote, by the devices of the two. Between two
// remote devices the bytes come through this process.
void CopyAny(const at::Tensor& source, const at::Tensor& destination);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_COPY_H_
