// Operators of namespaces other than PyTorch's own, whenever they are
// registered: those without a kernel for remote tensors are captured, and run
// by a worker that loads a library with the same operator.
//
// Shapes come from the operator's own kernel for meta tensors, in C++ or
// Python; without one the call waits for the worker. The first call on a device
// waits in any case: a worker that does not know the operator refuses it there
// and then.
#ifndef CLIENT_LIB_CAPTURE_CUSTOM_OPERATORS_H_
#define CLIENT_LIB_CAPTURE_CUSTOM_OPERATORS_H_

#include <memory>

#include "client_lib/capture/operator_info.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// Idempotent.
void RegisterCustomOperators();

// Whether the device's worker has taken a call of the operator. Thread-safe.
bool IsTakenBy(const OperatorInfo& info,
               const std::shared_ptr<VirtualDevice>& device);
void NoteTakenBy(const OperatorInfo& info,
                 const std::shared_ptr<VirtualDevice>& device);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_CUSTOM_OPERATORS_H_
