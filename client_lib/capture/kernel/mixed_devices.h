// Raises PyTorch's own errors for operands on several devices, followed by the
// text of ConnectOptions::strict_devices.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_MIXED_DEVICES_H_
#define CLIENT_LIB_CAPTURE_KERNEL_MIXED_DEVICES_H_

#include <c10/core/Device.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// Throws for the operand at position `argument`, which is on `device`; the
// operands before it are on `common`.
[[noreturn]] void ThrowMixedDevices(const OperatorInfo& info, size_t argument,
                                    c10::Device common, c10::Device device);

// Throws if the open session does not allow copies between its devices.
void CheckCopyAllowed(c10::Device source, c10::Device destination);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_MIXED_DEVICES_H_
