// How PyTorch chooses devices, streams and events of this backend.
//
// A virtual device has one stream: the session's order of calls is the only
// order, so every stream is the default one and to wait for another costs
// nothing. An event that is waited for, or asked whether it has happened, waits
// until the device has carried out everything issued so far; one with timing
// waits when it is recorded, too, so that the time between two is that of the
// work between them.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_DEVICE_GUARD_H_
#define CLIENT_LIB_CAPTURE_DEVICE_DEVICE_GUARD_H_

#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace djinn::capture {

// The backend's guard; lives for ever.
const c10::impl::DeviceGuardImplInterface& DeviceGuard();

// Throws unless there is a device with this index.
void CheckDeviceIndex(c10::DeviceIndex index);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_DEVICE_GUARD_H_
