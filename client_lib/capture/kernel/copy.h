// Copies between remote devices and the CPU, and between remote devices.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_COPY_H_
#define CLIENT_LIB_CAPTURE_KERNEL_COPY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Returns the id of aten::copy_ in the process's operator table.
uint32_t CopyOperatorId();

// Copies from the CPU to a remote tensor, converting the dtype and broadcasting
// as copy_ does. If the destination covers its storage, this is one upload.
// Otherwise the source is uploaded to a temporary storage and copied on the
// device.
void CopyToRemote(const at::Tensor& source, const at::Tensor& destination);

// Copies from a remote tensor to the CPU and waits for the value. Only the
// bytes of the view are sent.
void CopyToCpu(const at::Tensor& source, const at::Tensor& destination);

// Copies between any two tensors of which at least one is remote. Between two
// remote devices the bytes go from worker to worker.
void CopyAny(const at::Tensor& source, const at::Tensor& destination);

// Throws PyTorch's own error for operands on several devices, followed by the
// text of ConnectOptions::strict_devices. The operand at position `argument` is
// on `device`; the operands before it are on `common`.
[[noreturn]] void ThrowMixedDevices(const OperatorInfo& info, size_t argument,
                                    c10::Device common, c10::Device device);

// Throws if the open session does not allow copies between its devices.
void CheckCopyAllowed(c10::Device source, c10::Device destination);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_COPY_H_
