// Writes an operator's arguments into a session call.
#ifndef CLIENT_LIB_CAPTURE_ARGUMENT_WRITER_H_
#define CLIENT_LIB_CAPTURE_ARGUMENT_WRITER_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <memory>

#include "client_lib/capture/operator_info.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn::capture {

// The device a call runs on: that of its remote operands, else the one its
// device argument names, else the current one. Throws, as PyTorch does, when
// operands are on several devices; CPU tensors may be numbers (0-dimensional
// ones) and indices.
std::shared_ptr<VirtualDevice> DeviceOfCall(
    const OperatorInfo& info, c10::ArrayRef<c10::IValue> arguments);

// Throws when the tensor's dimensions have names, which get lost.
void RefuseNames(const OperatorInfo& info, const at::Tensor& tensor);

// Replaces index tensors on the CPU by uploaded copies.
void PlaceOperands(const OperatorInfo& info,
                   const std::shared_ptr<VirtualDevice>& device,
                   c10::ArrayRef<c10::IValue> arguments,
                   c10::IValue* mutable_arguments);

// Begins `call` and adds every argument, and the implicit generator when the
// call draws without naming one.
void WriteArguments(const OperatorInfo& info,
                    const std::shared_ptr<VirtualDevice>& device, uint32_t lane,
                    c10::ArrayRef<c10::IValue> arguments, Call* call);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_ARGUMENT_WRITER_H_
