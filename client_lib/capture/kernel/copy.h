// Copies between remote devices and the CPU, and between remote devices.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_COPY_H_
#define CLIENT_LIB_CAPTURE_KERNEL_COPY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace djinn::capture {

// Returns the id of aten::copy_ in the process's operator table.
uint32_t CopyOperatorId();

// Copies from the CPU to a remote tensor, converting the dtype and broadcasting
// as copy_ does. A destination that covers its storage is one upload; any other
// is uploaded to a temporary and copied on the device.
void CopyToRemote(const at::Tensor& source, const at::Tensor& destination);

// Copies from a remote tensor to the CPU and waits for the value. Only the
// bytes of the view are sent.
void CopyToCpu(const at::Tensor& source, const at::Tensor& destination);

// Copies between any two tensors of which at least one is remote. Between two
// remote devices the bytes go from worker to worker.
void CopyAny(const at::Tensor& source, const at::Tensor& destination);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_COPY_H_
