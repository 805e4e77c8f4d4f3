// Splits composites within PyTorch's function transforms (torch.func) as the
// CPU does. PyTorch splits them there before a call reaches a kernel of the
// device.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_FUNCTION_TRANSFORMS_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_FUNCTION_TRANSFORMS_H_

namespace djinn::capture {

// Registers dropout. Replaces PyTorch's kernel for transforms, which serves the
// tensors of other devices as before.
void RegisterFunctionTransforms();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_FUNCTION_TRANSFORMS_H_
