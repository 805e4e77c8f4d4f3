// What is said of operands on several devices: PyTorch's own words, and behind
// them those of a session that is strict about it (ConnectOptions).
#ifndef CLIENT_LIB_CAPTURE_KERNEL_MIXED_DEVICES_H_
#define CLIENT_LIB_CAPTURE_KERNEL_MIXED_DEVICES_H_

#include <c10/core/Device.h>

#include "client_lib/capture/operators/operator_info.h"

namespace djinn::capture {

// The operator's operand at position `argument` is on `device`, those before it
// on `common`.
[[noreturn]] void ThrowMixedDevices(const OperatorInfo& info, size_t argument,
                                    c10::Device common, c10::Device device);

// Throws when the open session wants no copies between its devices.
void CheckCopyAllowed(c10::Device source, c10::Device destination);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_MIXED_DEVICES_H_
