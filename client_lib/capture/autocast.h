// Mixed precision on the device: which operators torch.autocast casts, and how.
#ifndef CLIENT_LIB_CAPTURE_AUTOCAST_H_
#define CLIENT_LIB_CAPTURE_AUTOCAST_H_

namespace djinn::capture {

// PyTorch's own lists for accelerators. Idempotent.
void RegisterAutocast();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_AUTOCAST_H_
