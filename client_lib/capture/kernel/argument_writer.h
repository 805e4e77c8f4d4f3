// Writes an operator's arguments into the session's form of a call.
#ifndef CLIENT_LIB_CAPTURE_KERNEL_ARGUMENT_WRITER_H_
#define CLIENT_LIB_CAPTURE_KERNEL_ARGUMENT_WRITER_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <memory>

#include "client_lib/capture/operators/operator_info.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// Returns the device on which a call runs: the device of its remote operands,
// otherwise that of its device argument, otherwise the current one. Throws
// PyTorch's error if operands are on several devices. CPU tensors may accompany
// remote operands if they have no dimensions or are indices.
std::shared_ptr<VirtualDevice> DeviceOfCall(
    const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);

// Throws if the tensor's dimensions have names, because a worker would lose
// them.
void RefuseNames(const OperatorInfo& info, const at::Tensor& tensor);

// Replaces index tensors on the CPU by uploaded copies.
void PlaceOperands(const OperatorInfo& info,
                   const std::shared_ptr<VirtualDevice>& device,
                   c10::ArrayRef<c10::IValue> arguments,
                   c10::IValue* mutable_arguments);

// Begins `call` and adds every argument, and the default generator if the call
// draws random numbers without naming a generator.
void WriteArguments(const OperatorInfo& info,
                    const std::shared_ptr<VirtualDevice>& device, uint32_t lane,
                    c10::ArrayRef<c10::IValue> arguments, Call* call);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_KERNEL_ARGUMENT_WRITER_H_
