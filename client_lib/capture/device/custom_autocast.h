// Casts the operands of other libraries' operators in autocast regions.
//
// A library registers autocast kernels for the devices that it knows, such as
// torchvision for CUDA and, for some operators, the CPU. They compute in
// float32 and return the dtype of the first operand. Remote tensors get such a
// kernel for each operator that has an autocast kernel for CUDA or the CPU and
// none for them.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_CUSTOM_AUTOCAST_H_
#define CLIENT_LIB_CAPTURE_DEVICE_CUSTOM_AUTOCAST_H_

namespace djinn::capture {

// Notes the operators of other libraries from now on, and those that exist.
// Called once.
void WatchCustomOperators();

// Registers the kernels of the operators that were noted since the last call.
// The dispatcher takes no kernels while it announces an operator, so each new
// remote tensor calls this. Thread-safe.
void CastNewOperators();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_CUSTOM_AUTOCAST_H_
