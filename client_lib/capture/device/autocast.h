// Mixed precision on the device: which operators torch.autocast casts, and how.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_AUTOCAST_H_
#define CLIENT_LIB_CAPTURE_DEVICE_AUTOCAST_H_

namespace djinn::capture {

// PyTorch's own lists for accelerators. Idempotent.
void RegisterAutocast();

// Above a composite that is kept whole: whether its parts are what is cast.
// Where the composite itself is on the lists, autocast is over by then.
bool CastsParts();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_AUTOCAST_H_
