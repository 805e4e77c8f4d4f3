// Captures operators outside of PyTorch's own namespace that have no kernel for
// remote tensors, whenever they are registered. A worker that loads a library
// with the same operator executes them.
//
// The operator's own meta kernel, in C++ or Python, infers shapes. If it has
// none, each new call waits for the worker. The first call on a device always
// waits, so that a worker that does not know the operator refuses that call at
// once.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_CUSTOM_OPERATORS_H_
#define CLIENT_LIB_CAPTURE_KERNEL_CUSTOM_OPERATORS_H_

#include <memory>

#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// Registers the fallback kernel, once.
void RegisterCustomOperators();

// Returns whether the device's worker has accepted a call of the operator.
// Thread-safe.
bool IsAcceptedBy(const OperatorInfo& info,
                  const std::shared_ptr<VirtualDevice>& device);
void NoteAcceptedBy(const OperatorInfo& info,
                    const std::shared_ptr<VirtualDevice>& device);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_CUSTOM_OPERATORS_H_
